#!/usr/bin/env bash
# Certifies or fuzzes a session store, in any CI or by hand, and leaves what is worth keeping.
#
#   ci/torntail.sh certify TARGET [OPTION...]    for every change: minutes, the same each time
#   ci/torntail.sh fuzz    TARGET [OPTION...]    for every night: as long as it is given
#
# TARGET is what `torntail certify` takes: jsonl, sqlite, memory, or module:factory.
#
#   --level none|process|power   what is to be proven; default is what the store claims
#   --seed SEED                  certify: an integer, default 0; fuzz: also a commit hash, default
#                                $GITHUB_SHA, or the commit that is checked out, or a new one
#   --images COUNT               certify: distinct disk images to load
#   --baseline FILE              certify: accept what this certificate shows as violated
#   --scenarios FOLDER           certify: saved scenarios to run first, if it is there; default
#                                fault-scenarios
#   --minutes MINUTES            fuzz: default 10
#   --shard K/N                  fuzz: this machine is the K-th of N
#   --out FOLDER                 where results go; default torntail-results
#
# In FOLDER: summary.md, for people; certificate.json and scenarios.json, or fault-scenarios/ with
# what fuzzing found. Witnesses are in .torntail/runs. Keep .torntail/corpus between nights.
# The summary is also added to $GITHUB_STEP_SUMMARY, if that is set.
#
# Exit code: that of torntail, so 0 means that nothing is violated or undecided. $PYTHON is the
# interpreter torntail is installed for; default is python.
set -uo pipefail

# Tables are for people; without a terminal they would be narrow.
export COLUMNS=${COLUMNS:-110}

python=${PYTHON:-python}

usage() {
    printf 'ci/torntail.sh: %s\n' "$1" >&2
    printf 'usage: ci/torntail.sh certify|fuzz TARGET [OPTION...]; the options stand in the file\n' >&2
    exit 2
}

(($# >= 2)) || usage "name a task and a store"
task=$1 target=$2
shift 2
level="" seed="" images="" baseline="" scenarios=fault-scenarios minutes=10 shard=""
out=torntail-results
while (($#)); do
    (($# >= 2)) || usage "$1 needs a value"
    # An empty value is none, so that a CI may hand over what nobody has set.
    case $1 in
        --level) level=$2 ;;
        --seed) seed=$2 ;;
        --images) images=$2 ;;
        --baseline) baseline=$2 ;;
        --scenarios) scenarios=${2:-$scenarios} ;;
        --minutes) minutes=${2:-$minutes} ;;
        --shard) shard=$2 ;;
        --out) out=${2:-$out} ;;
        *) usage "there is no option $1" ;;
    esac
    shift 2
done
[[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage "--minutes $minutes: give a number"
if [[ ! -d $out ]]; then
    mkdir -p "$out" || exit 2
    # What is made here is not for git; a folder that was there is somebody's own.
    printf '*\n' >"$out/.gitignore"
fi
: >"$out/summary.md" || exit 2

# run NAME ARGUMENTS...: runs torntail, shows and keeps what it says; its exit code is `code`.
code=0
run() {
    local name=$1
    shift
    printf '+ torntail %s\n' "$*"
    "$python" -m torntail "$@" 2>&1 | tee "$out/$name.txt"
    code=${PIPESTATUS[0]}
    {
        printf '### torntail %s `%s`: exit code %d\n\n' "$name" "$target" "$code"
        # A fence that nothing a store says will end.
        printf '~~~~~~~~~~~~~~~~ text\n'
        tail -c 60000 "$out/$name.txt"
        printf '\n~~~~~~~~~~~~~~~~\n\n'
    } >>"$out/summary.md"
}

result=0
case $task in
    certify)
        common=()
        [[ -z $level ]] || common+=(--level "$level")
        if compgen -G "$scenarios/*/*.json" >/dev/null || compgen -G "$scenarios/*.json" >/dev/null
        then
            run replay replay "$scenarios" --store "$target" --json "$out/scenarios.json" \
                ${common[@]+"${common[@]}"}
            result=$code
        fi
        [[ -z $seed ]] || common+=(--seed "$seed")
        [[ -z $images ]] || common+=(--images "$images")
        [[ -z $baseline ]] || common+=(--baseline "$baseline")
        run certify certify "$target" --json "$out/certificate.json" ${common[@]+"${common[@]}"}
        ((code == 0)) || result=$code
        ;;
    fuzz)
        # CI counts no seeds: a commit has one of its own.
        [[ -n $seed ]] || seed=${GITHUB_SHA:-$(git rev-parse HEAD 2>/dev/null)}
        more=(--max-time "$(awk -v minutes="$minutes" 'BEGIN { print minutes * 60 }')")
        [[ -z $seed ]] || more+=(--seed "$seed")
        [[ -z $shard ]] || more+=(--shard "$shard")
        [[ -z $level ]] || more+=(--level "$level")
        run fuzz fuzz "$target" --save-to "$out/fault-scenarios" "${more[@]}"
        result=$code
        ;;
    *) usage "there is no task $task" ;;
esac

if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then
    cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$result"
