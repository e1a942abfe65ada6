/*
 * dl.c - loading a driver's library. Knows no driver.
 */
#include "dl.h"

#include <dlfcn.h>
#include <stdio.h>

bool qp_dl_load(const char *const *libraries, const char *const *names, size_t n, void **out,
                char reason[QP_REASON])
{
    void *library = NULL;
    const char *loaded = NULL;
    for (size_t i = 0; libraries[i] && !library; i++) {
        loaded = libraries[i];
        library = dlopen(loaded, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) {
        const char *why = dlerror();
        (void)snprintf(reason, QP_REASON, "no library: %s", why ? why : libraries[0]);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = dlsym(library, names[i]);
        if (!out[i]) {
            (void)snprintf(reason, QP_REASON, "%s lacks %s", loaded, names[i]);
            return false;
        }
    }
    return true;
}

void qp_dl_make_plain(char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            *text = ' ';
    }
}
