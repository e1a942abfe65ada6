/*
 * isa.c - instruction set levels: their names, and which of them this machine runs.
 *
 * A level counts only if the CPU has its instructions and the operating system saves its registers
 * (the compiler's cpu_supports asks both cpuid and xgetbv).
 */
#include "kernel.h"
#include "lib/base/error.h"
#include "lib/base/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <string.h>

static const char *const names[] = {
    [QPLAN_ISA_BEST] = NULL,
    [QPLAN_ISA_SCALAR] = "scalar",
    [QPLAN_ISA_AVX2] = "avx2",
    [QPLAN_ISA_AVX512] = "avx512",
};

#define LEVELS (sizeof names / sizeof names[0])

const char *qplan_isa_name(enum qplan_isa isa)
{
    return (size_t)isa < LEVELS ? names[isa] : NULL;
}

#if defined(__x86_64__)
/* Not every compiler's cpu_supports knows them by name. Their registers are those of AVX. */
static bool has_f16c_and_fma(void)
{
    const unsigned both = bit_F16C | bit_FMA;
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & both) == both;
}
#endif

static enum qplan_isa ask_cpu(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !has_f16c_and_fma())
        return QPLAN_ISA_SCALAR;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return QPLAN_ISA_AVX512;
    return QPLAN_ISA_AVX2;
#else
    return QPLAN_ISA_SCALAR;
#endif
}

/* Asked once: on a virtual machine cpuid leaves it, which costs more than a small tensor. */
enum qplan_isa qp_isa_detect(void)
{
    static _Atomic int found; /* whoever is first stores what everybody would */
    int level = atomic_load_explicit(&found, memory_order_relaxed);
    if (level == QPLAN_ISA_BEST) {
        level = (int)ask_cpu();
        atomic_store_explicit(&found, level, memory_order_relaxed);
    }
    return (enum qplan_isa)level;
}

enum qplan_status qplan_isa_parse(const char *name, enum qplan_isa *out, struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    for (unsigned i = QPLAN_ISA_SCALAR; i < LEVELS; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        if ((enum qplan_isa)i > qp_isa_detect())
            return qp_fail(err, QPLAN_ERR_USAGE, "instruction set", "this CPU does not have %s",
                           names[i]);
        *out = (enum qplan_isa)i;
        return QPLAN_OK;
    }
    return qp_fail(err, QPLAN_ERR_USAGE, "instruction set",
                   "unknown level: expected scalar, avx2 or avx512, found %s",
                   qp_quote(quoted, name, strlen(name)));
}
