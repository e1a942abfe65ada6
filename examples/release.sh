#!/bin/sh
# release.sh - shows a step of release CI: quantize MODEL by PLAN into OUT, prove it, keep REPORT
#
#   release.sh MODEL PLAN OUT REPORT
#
# Exit codes are those of qplan: 0 release it; 1 not good enough; 2 a mistake in this script;
# 3 model and plan do not fit; 4 the file system; 5 memory.
set -u
if [ $# -ne 4 ]; then
    echo "usage: release.sh MODEL PLAN OUT REPORT" >&2
    exit 2
fi
model=$1 plan=$2 out=$3 report=$4

qplan quantize --quiet --plan "$plan" --output "$out" "$model"
status=$?
case $status in
0) ;;
3) echo "release: make a new plan for $model and have it reviewed" >&2 ;;
4 | 5) echo "release: not the model's fault; mend the machine and try again" >&2 ;;
*) echo "release: quantize failed with exit $status" >&2 ;;
esac
[ $status -eq 0 ] || exit $status

# The report is printed also when the proof or a gate fails; stderr then says which.
qplan verify --quiet --json \
    --fail-if "sqnr_db < ${MIN_SQNR_DB:-30}" \
    --fail-if 'total:ratio < 1.9' \
    --fail-if 'kept_percent > 5' \
    "$out" "$model" >"$report"
status=$?
if [ $status -eq 0 ]; then
    jq -r '"release: proven, \(.totals.quantized) quantized, \(.file.bytes) bytes"' "$report"
else
    echo "release: $out is not released (exit $status); see $report" >&2
    rm -f "$out"
fi
exit $status
