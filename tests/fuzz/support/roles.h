/*
 * roles.h - what each stored tensor of an open checkpoint is.
 */
#ifndef FUZZ_ROLES_H
#define FUZZ_ROLES_H

#include "lib/store/checkpoint.h"

/* Promises that each is a tensor, or one part of one, or a note of its layout. */
void check_roles(const struct qplan_checkpoint *checkpoint);

#endif
