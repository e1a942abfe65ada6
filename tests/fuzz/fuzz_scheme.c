/*
 * fuzz_scheme.c - any text is a scheme or refused; a scheme survives being written and read again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/sets.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qplan_scheme scheme, again, resolved;
    struct qplan_error err;
    char canonical[QPLAN_SCHEME_TEXT], second[QPLAN_SCHEME_TEXT];
    char *text = calloc(size + 1, 1);
    require(text);
    if (size > 0)
        memcpy(text, data, size);
    if (qplan_scheme_parse(&scheme, text, &err) == QPLAN_OK) {
        size_t n = qplan_scheme_format(&scheme, canonical);
        require(n == strlen(canonical) && n < sizeof canonical);
        require(qplan_scheme_parse(&again, canonical, &err) == QPLAN_OK);
        require(qp_scheme_equal(&scheme, &again));
        (void)qplan_scheme_format(&again, second);
        require(strcmp(canonical, second) == 0);
        if (qp_scheme_resolve(&scheme, 3, &resolved)) {
            const uint64_t shape[] = {2, 3, 5};
            struct qp_sets sets;
            qp_sets_make(&sets, &resolved, shape, 3);
            require(sets.n_sets >= 1 && sets.n_sets <= sets.n_elems);
        }
    } else {
        require(err.status == QPLAN_ERR_USAGE && strstr(err.message, "(at character "));
    }
    free(text);
    return 0;
}
