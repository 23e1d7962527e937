# Sourced by every script here. The exit codes are those of docs/commands.md: a program of ours that fails gives its own
# (1: a gate failed), what has a sentence below gives 2 or 3, and a command that was not expected to fail gives 70.
set -euo pipefail
trap 'echo "$0: the command in line $LINENO failed, which nothing foresees." >&2; exit 70' ERR
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# refuse CODE SENTENCE
refuse() { echo "$2" >&2; exit "$1"; }

# takes COUNT USAGE ARGUMENT...: refuses fewer arguments than COUNT, and empty ones.
takes() {
  local count=$1 usage=$2 argument
  shift 2
  [ $# -ge "$count" ] || refuse 2 "usage: $0 $usage"
  for argument in "${@:1:$count}"; do [ -n "$argument" ] || refuse 2 "An argument is empty. usage: $0 $usage"; done
}

# ours PROGRAM...: runs a program that ends with an exit code of docs/commands.md and says why.
ours() { "$@" || exit; }

# found FILE WHAT: refuses to go on without a file that an earlier step leaves.
found() { [ -s "$1" ] || refuse 2 "$1 is missing or empty: $2"; }
