#!/usr/bin/env bash
# propose.sh WORKLOAD: pushes a branch with the recommendation, for a pull request. proposal/ has it as a patch, too, with
# the run's report and a README.txt: a branch that cannot be pushed is proposed by hand, and stops no release.
# Proposes nothing where the recommendation in the repository is of the same artifact.
source "$(dirname "$0")/common.bash"
takes 1 "WORKLOAD" "$@"
workload=$1 file=workloads/$1/recommendation.json
artifact() { python -c 'import json, sys; print(json.load(sys.stdin)["archive_sha256"])' 2> /dev/null; }
# CodeBuild fails a step whose output has no file.
tell() { echo "$1" | tee proposal/README.txt; }
found runs/candidate/recommendation.json "measure.sh leaves the recommendation there, where a candidate meets the objective."
found runs/candidate/report.html "measure.sh leaves the report there."
git rev-parse --quiet --verify HEAD > /dev/null \
  || refuse 3 "This is no clone of the repository, so no branch can be made."
mkdir -p proposal
new=$(artifact < runs/candidate/recommendation.json) \
  || refuse 2 "runs/candidate/recommendation.json is no recommendation: it names no archive_sha256."
cp runs/candidate/report.html "proposal/$workload-report.html"
old=$(git show "HEAD:$file" 2> /dev/null | artifact || true) # there may be none yet
if [ "$new" = "$old" ]; then
  tell "$file in the repository is of this artifact already: nothing is proposed."
  exit 0
fi
branch=recommendations/$workload-${new:0:12}
cp runs/candidate/recommendation.json "$file"
git checkout --quiet -B "$branch"
git add --force "$file"
git -c user.name="Release pipeline" -c user.email=release-pipeline@localhost \
  commit --quiet --message "Recommendation for $workload, measured on artifact ${new:0:12}"
git format-patch --quiet -1 --output-directory proposal
if git push --quiet --force origin "$branch"; then
  tell "Open a pull request from $branch: production is deployed once it is merged."
else
  tell "The branch could not be pushed. Apply the .patch file of this step's output and open a pull request by hand: \
production is deployed once it is merged."
fi
