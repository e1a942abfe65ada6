# bash completion for qplan. Made by 'qplan completions bash'; do not edit.
_qplan() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command= words=
    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
    COMPREPLY=()
    case $command in
    '') words='quantize plan explain inspect verify dequantize convert lint clean devices op help --help --version' ;;
    quantize)
        case $previous in
        --dtype) words='int2 int3 int4 int5 int6 int7 int8 uint2 uint3 uint4 uint5 uint6 uint7 uint8 fp8 f8e4m3 f8e5m2 f4e2m1 nf4' ;;
        --per-group) compopt +o default; return ;;
        --block) compopt +o default; return ;;
        --axis) compopt +o default; return ;;
        --scale-dtype) words='f32 f16 bf16 f8e4m3 e8m0' ;;
        --scheme) compopt +o default; return ;;
        --preset) compopt +o default; return ;;
        --calibrate) compopt +o default; return ;;
        --importance) return ;;
        --importance-missing) words='warn error' ;;
        --hessian) return ;;
        --hessian-damp) compopt +o default; return ;;
        --target-bpw) compopt +o default; return ;;
        --target-size) compopt +o default; return ;;
        --candidates) compopt +o default; return ;;
        --select) words='all linear' ;;
        --include) compopt +o default; return ;;
        --exclude) compopt +o default; return ;;
        --rules) return ;;
        --min-elements) compopt +o default; return ;;
        --min-rows) compopt +o default; return ;;
        --indivisible) words='error keep ragged' ;;
        --nonfinite) words='error saturate' ;;
        -o | --output) return ;;
        --format) compopt +o default; return ;;
        --activations) words='none dynamic' ;;
        --arithmetic) words='qplan reference' ;;
        --experts) words='keep split' ;;
        --zero-point) words='always asymmetric' ;;
        --max-shard-size) compopt +o default; return ;;
        --copy) compopt +o default; return ;;
        --plan) return ;;
        --fail-if) compopt +o default; return ;;
        --gate-min-elements) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--dtype --per-tensor --per-channel --per-group --block --axis --symmetric --asymmetric --narrow-range --scale-dtype --scheme --preset --calibrate --importance --importance-missing --hessian --hessian-damp --positive-scales --target-bpw --target-size --candidates --select --include --exclude --rules --min-elements --min-rows --indivisible --nonfinite -o --output -f --force --format --activations --arithmetic --experts --zero-point --max-shard-size --requantize --copy --plan --dry-run --verify --fail-if --gate-min-elements --device --device-memory -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    plan)
        case $previous in
        --dtype) words='int2 int3 int4 int5 int6 int7 int8 uint2 uint3 uint4 uint5 uint6 uint7 uint8 fp8 f8e4m3 f8e5m2 f4e2m1 nf4' ;;
        --per-group) compopt +o default; return ;;
        --block) compopt +o default; return ;;
        --axis) compopt +o default; return ;;
        --scale-dtype) words='f32 f16 bf16 f8e4m3 e8m0' ;;
        --scheme) compopt +o default; return ;;
        --preset) compopt +o default; return ;;
        --calibrate) compopt +o default; return ;;
        --importance) return ;;
        --importance-missing) words='warn error' ;;
        --hessian) return ;;
        --hessian-damp) compopt +o default; return ;;
        --target-bpw) compopt +o default; return ;;
        --target-size) compopt +o default; return ;;
        --candidates) compopt +o default; return ;;
        --select) words='all linear' ;;
        --include) compopt +o default; return ;;
        --exclude) compopt +o default; return ;;
        --rules) return ;;
        --min-elements) compopt +o default; return ;;
        --min-rows) compopt +o default; return ;;
        --indivisible) words='error keep ragged' ;;
        --nonfinite) words='error saturate' ;;
        -o | --output) return ;;
        --format) compopt +o default; return ;;
        --activations) words='none dynamic' ;;
        --arithmetic) words='qplan reference' ;;
        --experts) words='keep split' ;;
        --zero-point) words='always asymmetric' ;;
        --max-shard-size) compopt +o default; return ;;
        --copy) compopt +o default; return ;;
        --plan) return ;;
        --fail-if) compopt +o default; return ;;
        --gate-min-elements) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--dtype --per-tensor --per-channel --per-group --block --axis --symmetric --asymmetric --narrow-range --scale-dtype --scheme --preset --calibrate --importance --importance-missing --hessian --hessian-damp --positive-scales --target-bpw --target-size --candidates --select --include --exclude --rules --min-elements --min-rows --indivisible --nonfinite -o --output -f --force --format --activations --arithmetic --experts --zero-point --max-shard-size --requantize --copy --plan --dry-run --verify --fail-if --gate-min-elements --device --device-memory -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    explain)
        case $previous in
        --dtype) words='int2 int3 int4 int5 int6 int7 int8 uint2 uint3 uint4 uint5 uint6 uint7 uint8 fp8 f8e4m3 f8e5m2 f4e2m1 nf4' ;;
        --per-group) compopt +o default; return ;;
        --block) compopt +o default; return ;;
        --axis) compopt +o default; return ;;
        --scale-dtype) words='f32 f16 bf16 f8e4m3 e8m0' ;;
        --scheme) compopt +o default; return ;;
        --preset) compopt +o default; return ;;
        --calibrate) compopt +o default; return ;;
        --importance) return ;;
        --importance-missing) words='warn error' ;;
        --hessian) return ;;
        --hessian-damp) compopt +o default; return ;;
        --target-bpw) compopt +o default; return ;;
        --target-size) compopt +o default; return ;;
        --candidates) compopt +o default; return ;;
        --select) words='all linear' ;;
        --include) compopt +o default; return ;;
        --exclude) compopt +o default; return ;;
        --rules) return ;;
        --min-elements) compopt +o default; return ;;
        --min-rows) compopt +o default; return ;;
        --indivisible) words='error keep ragged' ;;
        --nonfinite) words='error saturate' ;;
        --format) compopt +o default; return ;;
        --activations) words='none dynamic' ;;
        --arithmetic) words='qplan reference' ;;
        --experts) words='keep split' ;;
        --zero-point) words='always asymmetric' ;;
        --max-shard-size) compopt +o default; return ;;
        --copy) compopt +o default; return ;;
        --plan) return ;;
        --fail-if) compopt +o default; return ;;
        --gate-min-elements) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--dtype --per-tensor --per-channel --per-group --block --axis --symmetric --asymmetric --narrow-range --scale-dtype --scheme --preset --calibrate --importance --importance-missing --hessian --hessian-damp --positive-scales --target-bpw --target-size --candidates --select --include --exclude --rules --min-elements --min-rows --indivisible --nonfinite -f --force --format --activations --arithmetic --experts --zero-point --max-shard-size --requantize --copy --plan --dry-run --verify --fail-if --gate-min-elements --device --device-memory -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    inspect)
        case $previous in
        --against) return ;;
        --include) compopt +o default; return ;;
        --fail-if) compopt +o default; return ;;
        --gate-min-elements) compopt +o default; return ;;
        --candidates) compopt +o default; return ;;
        --format) compopt +o default; return ;;
        --select) words='all linear' ;;
        --exclude) compopt +o default; return ;;
        --indivisible) words='error keep ragged' ;;
        --calibrate) compopt +o default; return ;;
        --importance) return ;;
        --importance-missing) words='warn error' ;;
        --hessian) return ;;
        --hessian-damp) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--against --tensors --include --fail-if --gate-min-elements --sensitivity --candidates --format --select --exclude --indivisible --calibrate --importance --importance-missing --hessian --hessian-damp --positive-scales --device --device-memory -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    verify)
        case $previous in
        --importance) return ;;
        --hessian) return ;;
        --hessian-damp) compopt +o default; return ;;
        --fail-if) compopt +o default; return ;;
        --gate-min-elements) compopt +o default; return ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--exact --importance --hessian --hessian-damp --allow-unproven --allow-unquantized --fail-if --gate-min-elements --device --device-memory -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    dequantize)
        case $previous in
        -o | --output) return ;;
        --copy) compopt +o default; return ;;
        --dtype) words='f32 f16 bf16' ;;
        --device) words='auto cpu cuda opencl' ;;
        --device-memory) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='-o --output -f --force --copy --dtype --device --device-memory -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    convert)
        case $previous in
        --format) compopt +o default; return ;;
        -o | --output) return ;;
        --copy) compopt +o default; return ;;
        -T | --threads) compopt +o default; return ;;
        --memory) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--format -o --output -f --force --copy -T --threads --memory --json -q --quiet -h --help ' ;;
        esac
        ;;
    lint)
        case $previous in
        --for) words='vllm sglang transformers mlx comfyui' ;;
        *) [[ $current == -* ]] && words='--for --json -q --quiet -h --help ' ;;
        esac
        ;;
    clean)
        case $previous in
        *) [[ $current == -* ]] && words='-h --help -q --quiet ' ;;
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
        -T | --threads) compopt +o default; return ;;
        *) [[ $current == -* ]] && words='--set -o --output -f --force --device --device-memory -T --threads --json -q --quiet -h --help ' ;;
        esac
        ;;
    help) words='quantize plan explain inspect verify dequantize convert lint clean devices op help formats presets rules metrics ' ;;
    esac
    # Without words or a match, bash goes on with file names.
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _qplan qplan
