/*
 * op_view.c - gathering and scattering strided elements. Moves or compares bytes; never looks at a
 * value.
 */
#include "op_view.h"

#include "lib/base/check.h"

#include <string.h>

/* Adds an axis behind the others; a step over the last one that equals its extent joins them. */
static void push_axis(struct qp_view *view, uint64_t extent, uint64_t stride)
{
    if (view->rank > 0 && view->stride[view->rank - 1] == extent * stride) {
        view->shape[view->rank - 1] *= extent;
        view->stride[view->rank - 1] = stride;
        return;
    }
    view->shape[view->rank] = extent;
    view->stride[view->rank++] = stride;
}

void qp_view_make(struct qp_view *view, void *data, size_t elem_bytes, const uint64_t *shape,
                  const int64_t *stride, unsigned rank)
{
    *view = (struct qp_view){.data = data, .elem_bytes = elem_bytes, .n_elems = 1};
    for (unsigned i = 0; i < rank; i++)
        view->n_elems *= shape[i];
    if (view->n_elems == 0)
        return;
    if (!stride) {
        push_axis(view, view->n_elems, 1);
        return;
    }
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] != 1)
            push_axis(view, shape[i], (uint64_t)stride[i]);
    }
}

/* Where an element is, in elements, and how many from it on are on the last axis. */
static uint64_t locate(const struct qp_view *view, uint64_t elem, uint64_t *left)
{
    uint64_t off = 0;
    *left = 1;
    for (unsigned i = view->rank; i-- > 0; elem /= view->shape[i]) {
        uint64_t at = elem % view->shape[i];
        off += at * view->stride[i];
        if (i == view->rank - 1)
            *left = view->shape[i] - at;
    }
    return off;
}

static uint64_t last_stride(const struct qp_view *view)
{
    return view->rank ? view->stride[view->rank - 1] : 1;
}

void *qp_view_at(const struct qp_view *view, uint64_t elem, size_t n)
{
    uint64_t left, off = locate(view, elem, &left);
    if (n > 1 && (n > left || last_stride(view) != 1))
        return NULL;
    return view->data + off * view->elem_bytes;
}

/* Copies n elements with steps in bytes. The sizes are constants so that a copy is one move. */
static void copy_steps(char *to, size_t to_step, const char *from, size_t from_step, size_t n,
                       size_t elem_bytes)
{
    if (to_step == elem_bytes && from_step == elem_bytes) {
        memcpy(to, from, n * elem_bytes);
        return;
    }
#define COPY(size)                                                                                 \
    for (size_t i = 0; i < n; i++)                                                                 \
    memcpy(to + i * to_step, from + i * from_step, size)
    switch (elem_bytes) {
    case 1:
        COPY(1);
        break;
    case 2:
        COPY(2);
        break;
    case 4:
        COPY(4);
        break;
    default:
        COPY(8);
        break;
    }
#undef COPY
}

const void *qp_view_get(const struct qp_view *view, uint64_t elem, size_t n, void *buffer)
{
    const void *direct = qp_view_at(view, elem, n);
    if (direct || n == 0)
        return direct;
    const size_t size = view->elem_bytes, step = (size_t)last_stride(view) * size;
    char *to = buffer;
    for (size_t done = 0; done < n;) {
        uint64_t left, off = locate(view, elem + done, &left);
        size_t part = (size_t)qp_min_u64(left, n - done);
        copy_steps(to + done * size, size, view->data + off * size, step, part, size);
        done += part;
    }
    return buffer;
}

void *qp_view_room(const struct qp_view *view, uint64_t elem, size_t n, void *buffer)
{
    void *direct = view->made ? NULL : qp_view_at(view, elem, n);
    return direct ? direct : buffer;
}

static void compare(const struct qp_view *view, uint64_t elem, size_t n, const void *from)
{
    const size_t size = view->elem_bytes;
    if (n > 0 && memcmp(view->made + elem * size, from, n * size) != 0)
        *view->differs = true;
}

void qp_view_put(const struct qp_view *view, uint64_t elem, size_t n, const void *from)
{
    if (view->made) {
        compare(view, elem, n, from);
        return;
    }
    if (n == 0 || from == qp_view_at(view, elem, n))
        return;
    const size_t size = view->elem_bytes, step = (size_t)last_stride(view) * size;
    for (size_t done = 0; done < n;) {
        uint64_t left, off = locate(view, elem + done, &left);
        size_t part = (size_t)qp_min_u64(left, n - done);
        copy_steps(view->data + off * size, step, (const char *)from + done * size, size, part,
                   size);
        done += part;
    }
}

void qp_view_zero(const struct qp_view *view, uint64_t elem, uint64_t n)
{
    static const char zeros[4096];
    const size_t step = sizeof zeros / view->elem_bytes;
    void *direct = n && !view->made ? qp_view_at(view, elem, (size_t)n) : NULL;
    if (direct)
        memset(direct, 0, (size_t)n * view->elem_bytes);
    for (uint64_t done = 0; !direct && view->data && done < n; done += step)
        qp_view_put(view, elem + done, (size_t)qp_min_u64(step, n - done), zeros);
}

void qp_view_keep(const struct qp_view *view, uint64_t elem, uint64_t n)
{
    double buffer[512];
    const size_t step = sizeof buffer / view->elem_bytes;
    for (uint64_t done = 0; view->made && view->data && done < n; done += step) {
        const size_t part = (size_t)qp_min_u64(step, n - done);
        compare(view, elem + done, part, qp_view_get(view, elem + done, part, buffer));
    }
}
