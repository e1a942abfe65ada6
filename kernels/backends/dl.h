/*
 * dl.h - libraries of a driver, loaded when they are wanted, so that the program runs without them.
 */
#ifndef QP_DL_H
#define QP_DL_H

#include <stdbool.h>
#include <stddef.h>

/* Room for a sentence that says why something cannot be used. */
#define QP_REASON 256

/*
 * Loads the first library of a list ended by NULL that can be loaded, and looks up n names in it;
 * out[i] is the address of names[i]. On failure returns false and says why. A library stays loaded:
 * drivers start threads that outlive the last call.
 */
bool qp_dl_load(const char *const *libraries, const char *const *names, size_t n, void **out,
                char reason[QP_REASON]);

/* One line of ASCII: what a driver says goes to terminals and into JSON. */
void qp_dl_make_plain(char *text);

#endif
