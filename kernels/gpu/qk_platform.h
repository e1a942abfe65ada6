/*
 * qk_platform.h - what differs between the three languages of the device text: CUDA C, OpenCL C and
 * host C11. Everything else in this folder is written in what they have in common.
 *
 * A kernel is launched in groups. QK_GROUP is the number of the group, QK_LID the number of a
 * thread in it, QK_LSIZE its threads. Loops stride by QK_LSIZE, so the text is right for any size;
 * on the host it is 1 and a kernel is serial C. A kernel has one block of memory and one struct of
 * integers, `a`, whose offsets say where in the block things are.
 *
 * An array that a group shares is declared QK_SHARED at the top of a kernel; a pointer into it is
 * QK_LOCAL, one into the block QK_GLOBAL. `restrict` has no use here, with one pointer, and another
 * name in CUDA.
 *
 * `half` and the names of vector types are keywords in OpenCL C.
 *
 * 64-bit floats exist only under QK_FP64: a device without them never sees the word.
 */
#ifndef QK_PLATFORM_H
#define QK_PLATFORM_H

/* The largest group that a kernel may be launched with. */
#define QK_GROUP_MOST 256

#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)

#pragma OPENCL FP_CONTRACT OFF
#ifdef QK_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

typedef uchar qk_u8;
typedef ushort qk_u16;
typedef int qk_i32;
typedef uint qk_u32;
typedef ulong qk_u64;
typedef uint4 qk_u32x4;

#define QK_FN                 static inline
#define QK_GLOBAL             __global
#define QK_LOCAL              __local
#define QK_SHARED             __local
#define QK_KERNEL(name, ARGS) __kernel void name(QK_GLOBAL qk_u8 *block, ARGS a)
#define QK_GROUP              ((qk_u32)get_group_id(0))
#define QK_LID                ((qk_u32)get_local_id(0))
#define QK_LSIZE              ((qk_u32)get_local_size(0))
#define QK_BARRIER            barrier(CLK_LOCAL_MEM_FENCE)
#define QK_F32(bits)          as_float(bits)
#define QK_U32(x)             as_uint(x)
#define QK_F64(bits)          as_double(bits)
#define QK_U64(x)             as_ulong(x)
#define QK_ATOMIC_ADD(p, n)   ((void)atomic_add((volatile QK_GLOBAL qk_u32 *)(p), n))
#define QK_ATOMIC_TAKE(p, n)  atomic_add((volatile QK_GLOBAL qk_u32 *)(p), n) /* what it was */
#define QK_ATOMIC_MIN(p, n)   ((void)atomic_min((volatile QK_GLOBAL qk_u32 *)(p), n))

#elif defined(__CUDACC__)

typedef unsigned char qk_u8;
typedef unsigned short qk_u16;
typedef int qk_i32;
typedef unsigned int qk_u32;
typedef unsigned long long qk_u64;
typedef uint4 qk_u32x4;

#define QK_FN static __device__ __forceinline__
#define QK_GLOBAL
#define QK_LOCAL
#define QK_SHARED             __shared__
#define QK_KERNEL(name, ARGS) extern "C" __global__ void name(qk_u8 *block, ARGS a)
#define QK_GROUP              (blockIdx.x)
#define QK_LID                (threadIdx.x)
#define QK_LSIZE              (blockDim.x)
#define QK_BARRIER            __syncthreads()
#define QK_F32(bits)          __uint_as_float(bits)
#define QK_U32(x)             __float_as_uint(x)
#define QK_F64(bits)          __longlong_as_double((long long)(bits))
#define QK_U64(x)             ((qk_u64)__double_as_longlong(x))
#define QK_ATOMIC_ADD(p, n)   ((void)atomicAdd(p, n))
#define QK_ATOMIC_TAKE(p, n)  atomicAdd(p, n)
#define QK_ATOMIC_MIN(p, n)   ((void)atomicMin(p, n))

#else

#include <stdint.h>
#include <string.h>

typedef uint8_t qk_u8;
typedef uint16_t qk_u16;
typedef int32_t qk_i32;
typedef uint32_t qk_u32;
typedef uint64_t qk_u64;

typedef struct {
    qk_u32 x, y, z, w;
} qk_u32x4;

static inline float qk_host_f32(qk_u32 bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline qk_u32 qk_host_u32(float x)
{
    qk_u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double qk_host_f64(qk_u64 bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline qk_u64 qk_host_u64(double x)
{
    qk_u64 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

#define QK_FN static inline
#define QK_GLOBAL
#define QK_LOCAL
#define QK_SHARED             /* arrays of a group of one are automatic, so that threads may share the text */
#define QK_GROUP              qk_host_group
#define QK_LID                0u
#define QK_LSIZE              1u
#define QK_BARRIER            ((void)0)
#define QK_F32(bits)          qk_host_f32(bits)
#define QK_U32(x)             qk_host_u32(x)
#define QK_F64(bits)          qk_host_f64(bits)
#define QK_U64(x)             qk_host_u64(x)
#define QK_ATOMIC_ADD(p, n)   ((void)(*(p) += (n)))
#define QK_ATOMIC_TAKE(p, n)  ((*(p) += (n)) - (n))
#define QK_ATOMIC_MIN(p, n)   ((void)(*(p) = *(p) < (n) ? *(p) : (n)))

/* The function behind the name takes its arguments like a launch does: one pointer for any kernel,
 * to so many bytes. */
#define QK_KERNEL(name, ARGS) QK_HOST_KERNEL(name, ARGS) /* name is a macro of its own */
#define QK_HOST_KERNEL(name, ARGS)                                                                 \
    enum { name##_n_args = sizeof(ARGS) };                                                         \
    static void name##_group(qk_u32 qk_host_group, qk_u8 *block, ARGS a);                          \
    static void name(qk_u32 qk_host_group, void *block, const void *args)                          \
    {                                                                                              \
        ARGS a;                                                                                    \
        memcpy(&a, args, sizeof a);                                                                \
        name##_group(qk_host_group, block, a);                                                     \
    }                                                                                              \
    static void name##_group(qk_u32 qk_host_group, qk_u8 *block, ARGS a)

#endif

#endif
