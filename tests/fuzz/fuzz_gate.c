/*
 * fuzz_gate.c - any text is a gate or refused; the text that a gate keeps is the same gate, and its
 * pattern can be matched against anything.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/glob.h"
#include "lib/report/gate.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void require_same(const struct qplan_gate *a, const struct qplan_gate *b)
{
    require(strcmp(a->text, b->text) == 0);
    require(a->scope == b->scope && a->metric == b->metric && a->op == b->op);
    require(a->limit == b->limit);
    require(!a->glob == !b->glob && (!a->glob || strcmp(a->glob, b->glob) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qplan_gate *gate, *again;
    struct qplan_error err;
    char *text = calloc(size + 1, 1);
    require(text);
    if (size > 0)
        memcpy(text, data, size);
    if (qplan_gate_parse(&gate, text, &err) == QPLAN_OK) {
        require(qplan_gate_parse(&again, gate->text, &err) == QPLAN_OK);
        require_same(gate, again);
        if (gate->glob)
            (void)qp_glob_match(gate->glob, text, size);
        qplan_gate_free(again);
    } else {
        require(!gate && err.status == QPLAN_ERR_USAGE && err.message[0]);
    }
    qplan_gate_free(gate);
    free(text);
    return 0;
}
