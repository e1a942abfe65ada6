# bash completion for qplan. Made by 'qplan completions bash'; do not edit.
_qplan() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command= words=
    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
    COMPREPLY=()
    case $command in
    '') words='quantize plan inspect verify dequantize clean devices op help --help --version' ;;
    quantize)
        case $previous in
        --dtype) words='int8 uint8 int4 uint4' ;;
        --per-group) compopt +o default; return ;;
        --block) compopt +o default; return ;;
        --axis) compopt +o default; return ;;
        --scale-dtype) words='f32 f16 bf16' ;;
        --scheme) compopt +o default; return ;;
        --calibrate) compopt +o default; return ;;
        --select) words='all' ;;
        --include) compopt +o default; return ;;
        --exclude) compopt +o default; return ;;
        --indivisible) words='error keep ragged' ;;
        --nonfinite) words='error saturate' ;;
        -o | --output) return ;;
        --format) compopt +o default; return ;;
        --zero-point) words='always asymmetric' ;;
        --copy) compopt +o default; return ;;
        --plan) return ;;
        --fail-if) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--dtype --per-tensor --per-channel --per-group --block --axis --symmetric --asymmetric --narrow-range --scale-dtype --scheme --calibrate --select --include --exclude --indivisible --nonfinite -o --output --force --format --zero-point --copy --plan --dry-run --verify --fail-if --device --device-memory --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    plan)
        case $previous in
        --dtype) words='int8 uint8 int4 uint4' ;;
        --per-group) compopt +o default; return ;;
        --block) compopt +o default; return ;;
        --axis) compopt +o default; return ;;
        --scale-dtype) words='f32 f16 bf16' ;;
        --scheme) compopt +o default; return ;;
        --calibrate) compopt +o default; return ;;
        --select) words='all' ;;
        --include) compopt +o default; return ;;
        --exclude) compopt +o default; return ;;
        --indivisible) words='error keep ragged' ;;
        --nonfinite) words='error saturate' ;;
        -o | --output) return ;;
        --format) compopt +o default; return ;;
        --zero-point) words='always asymmetric' ;;
        --copy) compopt +o default; return ;;
        --plan) return ;;
        --fail-if) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--dtype --per-tensor --per-channel --per-group --block --axis --symmetric --asymmetric --narrow-range --scale-dtype --scheme --calibrate --select --include --exclude --indivisible --nonfinite -o --output --force --format --zero-point --copy --plan --dry-run --verify --fail-if --device --device-memory --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    inspect)
        case $previous in
        --against) return ;;
        --include) compopt +o default; return ;;
        --fail-if) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--against --tensors --include --fail-if --device --device-memory --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    verify)
        case $previous in
        --fail-if) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--exact --allow-unquantized --fail-if --device --device-memory --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    dequantize)
        case $previous in
        -o | --output) return ;;
        --dtype) words='f32 f16 bf16' ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='-o --output --force --dtype --device --device-memory --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    clean)
        case $previous in
        *) [[ $current == -* ]] && words='-h --help ' ;;
        esac
        ;;
    devices)
        case $previous in
        *) [[ $current == -* ]] && words='--self-test --json -h --help ' ;;
        esac
        ;;
    op)
        case $previous in
        --set) compopt +o default; return ;;
        -o | --output) return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        --threads) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--set -o --output --force --device --device-memory --threads --json -q --quiet -h --help ' ;;
        esac
        ;;
    help) words='quantize plan inspect verify dequantize clean devices op help metrics ' ;;
    esac
    # Without words or a match, bash goes on with file names.
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _qplan qplan
