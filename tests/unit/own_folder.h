/*
 * own_folder.h - a folder for the files of a test program: the setup and teardown of its group.
 */
#ifndef TEST_OWN_FOLDER_H
#define TEST_OWN_FOLDER_H

#include "support.h"

static struct folder folder;

static int make_folder(void **state)
{
    (void)state;
    folder_make(&folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(&folder);
    return 0;
}

#endif
