#!/usr/bin/env bash
# propose.sh WORKLOAD: pushes a branch with the recommendation, for a pull request, and leaves it as a patch in proposal/, too.
# Proposes nothing where the recommendation in the repository is of the same artifact.
set -euo pipefail
cd "$(dirname "$0")/../.."
workload=$1 file=workloads/$1/recommendation.json
sha256() { python -c 'import json, sys; print(json.load(sys.stdin)["archive_sha256"])'; }
mkdir -p proposal
new=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["archive_sha256"])' runs/candidate/recommendation.json)
old=$(git show "HEAD:$file" 2> /dev/null | sha256 2> /dev/null || true)
if [ "$new" = "$old" ]; then
  echo "$file in the repository is of this artifact already: nothing is proposed."
  exit 0
fi
branch=recommendations/$workload-${new:0:12}
cp runs/candidate/recommendation.json "$file"
git checkout --quiet -B "$branch"
git add --force "$file"
git -c user.name="Release pipeline" -c user.email=release-pipeline@localhost \
  commit --quiet --message "Recommendation for $workload, measured on artifact ${new:0:12}"
git format-patch --quiet -1 --output-directory proposal
cp runs/candidate/report.html "proposal/$workload-report.html"
if ! git push --quiet --force origin "$branch"; then
  echo "The branch could not be pushed. Apply proposal/*.patch of this step's output and open a pull request by hand." >&2
  exit 3
fi
echo "Open a pull request from $branch: production is deployed once it is merged."
