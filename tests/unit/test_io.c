/*
 * test_io.c - input files that are regular and unchanged; outputs that appear complete or not at
 * all.
 */
#include "own_folder.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "lib/base/io.h"

static const char *path_of(const char *name)
{
    return in_folder(&folder, name);
}

/* ---- Room -------------------------------------------------------------------------------------
 */

/* Bytes that the nearest of both is away from the other, by the last twelve bits. */
static uint64_t distance(const void *room, uint64_t off)
{
    const uint64_t ahead = ((uintptr_t)room - off) % 4096;
    return ahead < 4096 - ahead ? ahead : 4096 - ahead;
}

static void room_is_found_within_the_spare_bytes(void **state)
{
    static char buffer[8192 + QP_IO_SPARE];
    (void)state;
    for (size_t at = 0; at < 128; at++) {
        for (uint64_t off = 0; off < 4096 + 128; off++) {
            const uint64_t other = off * 7;
            const char *room = qp_io_room(buffer + at, off, other);
            assert_true(room >= buffer + at && room < buffer + at + QP_IO_SPARE);
            assert_true(distance(room, off) == 0 || distance(room, off) >= 64);
            assert_true(distance(room, other) == 0 || distance(room, other) >= 64);
        }
    }
}

/* ---- Input files ----------------------------------------------------------------------------- */

static void a_file_is_read_by_position(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    char bytes[8] = "";
    (void)state;
    write_file(path_of("in"), "0123456789", 10);
    OK(qp_file_open(&file, path_of("in"), &err), &err);
    assert_int_equal(file.size, 10);
    OK(qp_file_read(&file, 3, bytes, 4, &err), &err);
    assert_memory_equal(bytes, "3456", 4);
    OK(qp_file_read(&file, 10, bytes, 0, &err), &err);
    OK(qp_file_unchanged(&file, &err), &err);
    assert_int_equal(qp_file_read(&file, 8, bytes, 3, &err), QPLAN_ERR_IO);
    assert_non_null(strstr(err.message, "became shorter"));
    assert_int_equal(err.offset, 10);
    qp_file_close(&file);
    qp_file_close(&file); /* harmless */
    assert_int_equal(file.fd, -1);
}

/* The times of files move in ticks of a few milliseconds: what follows has times of its own. */
static void wait_for_the_clock(void)
{
    const struct timespec tick = {0, 30 * 1000 * 1000};
    assert_int_equal(nanosleep(&tick, NULL), 0);
}

static void a_change_is_noticed_and_a_new_link_is_none(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    const struct timeval times[2] = {{1, 0}, {1, 0}};
    (void)state;
    write_file(path_of("changing"), "0123456789", 10);
    OK(qp_file_open(&file, path_of("changing"), &err), &err);
    wait_for_the_clock();
    assert_int_equal(link(path_of("changing"), path_of("link")), 0);
    OK(qp_file_unchanged(&file, &err), &err);
    assert_int_equal(utimes(path_of("changing"), times), 0);
    assert_int_equal(qp_file_unchanged(&file, &err), QPLAN_ERR_IO);
    assert_non_null(strstr(err.message, "modification time moved"));
    assert_int_equal(truncate(path_of("changing"), 5), 0);
    assert_int_equal(qp_file_unchanged(&file, &err), QPLAN_ERR_IO);
    assert_non_null(strstr(err.message, "expected 10 bytes, found 5"));
    qp_file_close(&file);
}

/* Writes other bytes in place and puts the modification time back, as rsync --inplace does. */
static void rewrite_secretly(const char *path)
{
    struct stat before;
    assert_int_equal(stat(path, &before), 0);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    wait_for_the_clock();
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "other", 5, 2), 5);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
}

static void a_modification_time_that_was_put_back_hides_nothing(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    (void)state;
    write_file(path_of("secret"), "0123456789", 10);
    OK(qp_file_open(&file, path_of("secret"), &err), &err);
    rewrite_secretly(path_of("secret"));
    assert_int_equal(qp_file_unchanged(&file, &err), QPLAN_ERR_IO);
    assert_non_null(strstr(err.message, "change time moved"));
    qp_file_close(&file);
    int fd = open(path_of("secret"), O_RDONLY | O_CLOEXEC);
    OK(qp_file_wrap(&file, fd, "a name that it never had", &err), &err);
    rewrite_secretly(path_of("secret"));
    assert_int_equal(qp_file_unchanged(&file, &err), QPLAN_ERR_IO);
    qp_file_close(&file);
    assert_int_equal(close(fd), 0);
}

static void a_file_that_moved_can_still_be_read(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    (void)state;
    write_file(path_of("here"), "x", 1);
    OK(qp_file_open(&file, path_of("here"), &err), &err);
    wait_for_the_clock();
    assert_int_equal(rename(path_of("here"), path_of("there")), 0);
    OK(qp_file_unchanged(&file, &err), &err);
    write_file(path_of("here"), "y", 1);
    OK(qp_file_unchanged(&file, &err), &err);
    qp_file_close(&file);
}

static void a_file_without_its_name_can_still_be_read(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    char byte;
    (void)state;
    write_file(path_of("gone"), "x", 1);
    OK(qp_file_open(&file, path_of("gone"), &err), &err);
    wait_for_the_clock();
    assert_int_equal(unlink(path_of("gone")), 0);
    OK(qp_file_read(&file, 0, &byte, 1, &err), &err);
    OK(qp_file_unchanged(&file, &err), &err);
    qp_file_close(&file);
}

static void a_wrapped_descriptor_stays_open(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    int pipe_fds[2];
    (void)state;
    write_file(path_of("wrapped"), "abc", 3);
    int fd = open(path_of("wrapped"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    OK(qp_file_wrap(&file, fd, "some name", &err), &err);
    assert_int_equal(file.size, 3);
    assert_string_equal(file.path, "some name");
    qp_file_close(&file);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(close(fd), 0);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(qp_file_wrap(&file, pipe_fds[0], "pipe", &err), QPLAN_ERR_INVALID);
    assert_int_equal(close(pipe_fds[0]) | close(pipe_fds[1]), 0);
}

static void what_is_no_regular_file_is_refused_without_waiting(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path_of("socket"));
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    const char *const paths[] = {path_of("fifo"), path_of("socket"), folder.path, "/dev/null"};
    static const char *const kinds[] = {"a pipe", "a socket", "a folder", "a device"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        assert_int_equal(qp_file_open(&file, paths[i], &err), QPLAN_ERR_INVALID);
        assert_non_null(strstr(err.message, "expected a regular file, found"));
        assert_non_null(strstr(err.message, kinds[i]));
        assert_int_equal(file.fd, -1);
    }
    (void)close(fd);
    assert_int_equal(qp_file_open(&file, path_of("missing"), &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_int_equal(qp_file_open(&file, path_of("missing"), NULL), QPLAN_ERR_IO);
}

static void paths_are_escaped_in_messages(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    (void)state;
    assert_int_equal(qp_file_open(&file, path_of("no\x1b[2J"), &err), QPLAN_ERR_IO);
    assert_null(strchr(err.subject, '\x1b'));
}

/* ---- Outputs --------------------------------------------------------------------------------- */

static enum qplan_status open_output(struct qp_out *out, const char *name, bool force,
                                     uint64_t n_bytes, struct qplan_error *err)
{
    const struct qp_out_request request = {
        .path = path_of(name), .force = force, .n_bytes = n_bytes};
    return qp_out_open(out, &request, err);
}

static enum qplan_status write_output(const char *path, bool force, const char *bytes,
                                      struct qplan_error *err)
{
    struct qp_out out;
    bool synced;
    const struct qp_out_request request = {.path = path, .force = force, .n_bytes = strlen(bytes)};
    enum qplan_status status = qp_out_open(&out, &request, err);
    if (status == QPLAN_OK)
        status = qp_out_write(&out, 0, bytes, strlen(bytes), err);
    if (status == QPLAN_OK)
        status = qp_out_commit(&out, &synced, err);
    qp_out_discard(&out);
    qp_out_discard(&out); /* nothing twice */
    return status;
}

static void assert_content(const char *path, const char *expected)
{
    size_t n;
    unsigned char *bytes = read_file(path, &n);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(bytes, expected, n);
    free(bytes);
}

static void an_output_has_its_name_only_after_the_commit(void **state)
{
    struct qp_out out;
    bool synced;
    struct qplan_error err;
    (void)state;
    OK(open_output(&out, "o1", false, 6, &err), &err);
    OK(qp_out_write(&out, 3, "def", 3, &err), &err);
    OK(qp_out_write(&out, 0, "abc", 3, &err), &err);
    assert_false(file_exists(path_of("o1")));
    OK(qp_out_commit(&out, &synced, &err), &err);
    assert_true(synced);
    assert_content(path_of("o1"), "abcdef");
    qp_out_discard(&out);
    assert_content(path_of("o1"), "abcdef");
    struct stat st;
    assert_int_equal(stat(path_of("o1"), &st), 0);
    assert_int_equal(st.st_mode & 0600, 0600);
    assert_int_equal(st.st_nlink, 1);
}

static void a_discarded_output_leaves_nothing(void **state)
{
    struct qp_out out;
    struct qplan_error err;
    size_t before = folder_count(&folder);
    (void)state;
    OK(open_output(&out, "o2", true, 6, &err), &err);
    OK(qp_out_write(&out, 0, "abc", 3, &err), &err);
    qp_out_discard(&out);
    assert_int_equal(folder_count(&folder), before);
}

static void an_existing_target_needs_force(void **state)
{
    struct qplan_error err;
    (void)state;
    write_file(path_of("o3"), "old", 3);
    assert_int_equal(write_output(path_of("o3"), false, "new", &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, EEXIST);
    assert_int_equal(err.advice, QPLAN_ADVICE_FORCE);
    assert_content(path_of("o3"), "old");
    OK(write_output(path_of("o3"), true, "new", &err), &err);
    assert_content(path_of("o3"), "new");
    OK(write_output(path_of("o4"), true, "none before", &err), &err);
    assert_content(path_of("o4"), "none before");
}

/* The check at the end is the one that counts. */
static void a_target_made_meanwhile_is_not_lost(void **state)
{
    struct qp_out out;
    bool synced;
    struct qplan_error err;
    size_t before = folder_count(&folder);
    (void)state;
    OK(open_output(&out, "o5", false, 3, &err), &err);
    OK(qp_out_write(&out, 0, "new", 3, &err), &err);
    write_file(path_of("o5"), "theirs", 6);
    assert_int_equal(qp_out_commit(&out, &synced, &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, EEXIST);
    assert_content(path_of("o5"), "theirs");
    assert_int_equal(folder_count(&folder), before + 1);
    assert_int_equal(out.fd, -1);
}

static void a_link_is_replaced_not_followed(void **state)
{
    struct qplan_error err;
    struct stat st;
    (void)state;
    write_file(path_of("linked"), "old", 3);
    assert_int_equal(symlink("linked", path_of("o6")), 0);
    assert_int_equal(symlink("nowhere", path_of("o7")), 0);
    assert_int_equal(write_output(path_of("o6"), false, "new", &err), QPLAN_ERR_IO);
    assert_int_equal(write_output(path_of("o7"), false, "new", &err), QPLAN_ERR_IO);
    assert_false(file_exists(path_of("nowhere")));
    OK(write_output(path_of("o6"), true, "new", &err), &err);
    OK(write_output(path_of("o7"), true, "new", &err), &err);
    assert_content(path_of("linked"), "old");
    assert_int_equal(lstat(path_of("o6"), &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_content(path_of("o7"), "new");
    assert_false(file_exists(path_of("nowhere")));
}

static void an_input_is_no_target_by_whatever_path(void **state)
{
    struct qp_file file;
    struct qplan_error err;
    struct qp_out out;
    char roundabout[600];
    (void)state;
    write_file(path_of("input"), "data", 4);
    assert_int_equal(link(path_of("input"), path_of("hard")), 0);
    assert_int_equal(symlink("input", path_of("soft")), 0);
    (void)snprintf(roundabout, sizeof roundabout, "%s/./input", folder.path);
    OK(qp_file_open(&file, path_of("input"), &err), &err);
    const char *const targets[] = {path_of("input"), path_of("hard"), path_of("soft"), roundabout};
    for (size_t i = 0; i < COUNT(targets) * 2; i++) {
        const struct qp_out_request request = {
            .path = targets[i / 2], .force = i % 2, .n_bytes = 1, .input = &file};
        assert_int_equal(qp_out_open(&out, &request, &err), QPLAN_ERR_USAGE);
        assert_non_null(strstr(err.message, "the output is the input"));
        assert_int_equal(out.fd, -1);
    }
    assert_content(path_of("input"), "data");
    qp_file_close(&file);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* An output over a file of mode target, or over none if that is 0, made of one of mode source. */
static void assert_mode(mode_t source, mode_t target, mode_t mask, bool like_input, mode_t expected)
{
    const struct qp_out_request request = {.path = path_of("moded"),
                                           .force = target != 0,
                                           .input = &(struct qp_file){.mode = S_IFREG | source},
                                           .like_input = like_input};
    struct qp_out out;
    struct stat st;
    bool synced;
    struct qplan_error err;
    if (target) {
        write_file(request.path, "old", 3);
        assert_int_equal(chmod(request.path, target), 0);
    }
    const mode_t before = umask(mask);
    OK(qp_out_open(&out, &request, &err), &err);
    (void)umask(before);
    assert_int_equal(fstat(out.fd, &st), 0); /* not for a moment it was wider */
    assert_int_equal(st.st_mode & 07777, expected);
    OK(qp_out_commit(&out, &synced, &err), &err);
    assert_int_equal(mode_of(request.path), expected);
    assert_int_equal(unlink(request.path), 0);
}

static void an_output_has_the_mode_of_its_input_or_of_what_it_replaces(void **state)
{
    (void)state;
    assert_mode(0600, 0, 0, true, 0600);
    assert_mode(0400, 0, 022, true, 0400);
    assert_mode(0666, 0, 022, true, 0644);
    assert_mode(06777, 0, 0, true, 0777);
    assert_mode(0644, 0600, 022, true, 0600);
    assert_mode(0600, 0644, 022, true, 0644);
    assert_mode(0644, 0666, 077, true, 0600);
}

static void a_document_has_the_mode_of_any_new_file(void **state)
{
    (void)state;
    assert_mode(0600, 0, 0, false, 0666);
    assert_mode(0600, 0600, 027, false, 0640);
}

static void targets_that_cannot_be_are_refused(void **state)
{
    struct qplan_error err;
    char deep[600];
    (void)state;
    assert_int_equal(mkdir(path_of("subfolder"), 0700), 0);
    assert_int_equal(write_output(path_of("subfolder"), true, "x", &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, EISDIR);
    assert_int_equal(write_output(path_of("missing/file"), true, "x", &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_int_equal(write_output(path_of("o1/file"), true, "x", &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, ENOTDIR);
    static const char *const nameless[] = {"", "/", "subfolder/", "subfolder/.", ".."};
    for (size_t i = 0; i < COUNT(nameless); i++)
        assert_int_equal(write_output(path_of(nameless[i]), true, "x", &err), QPLAN_ERR_USAGE);
    assert_int_equal(write_output("", true, "x", &err), QPLAN_ERR_USAGE);
    (void)snprintf(deep, sizeof deep, "%s/%0300d", folder.path, 1);
    assert_int_equal(write_output(deep, true, "x", &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, ENAMETOOLONG);
}

static void too_little_room_is_noticed_before_any_work(void **state)
{
    struct qp_out out;
    struct qplan_error err;
    (void)state;
    assert_int_equal(open_output(&out, "o8", false, UINT64_MAX / 2, &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_non_null(strstr(err.message, "bytes needed"));
    assert_false(file_exists(path_of("o8")));
}

static void a_failed_write_names_the_byte(void **state)
{
    struct qp_out out;
    struct qplan_error err;
    (void)state;
    OK(open_output(&out, "o9", false, 3, &err), &err);
    int fd = out.fd;
    out.fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* cannot be written */
    assert_int_equal(qp_out_write(&out, 7, "abc", 3, &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, EBADF);
    assert_int_equal(err.offset, 7);
    (void)close(out.fd);
    out.fd = fd;
    qp_out_discard(&out);
    assert_false(file_exists(path_of("o9")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_found_within_the_spare_bytes),
        cmocka_unit_test(a_file_is_read_by_position),
        cmocka_unit_test(a_change_is_noticed_and_a_new_link_is_none),
        cmocka_unit_test(a_modification_time_that_was_put_back_hides_nothing),
        cmocka_unit_test(a_file_that_moved_can_still_be_read),
        cmocka_unit_test(a_file_without_its_name_can_still_be_read),
        cmocka_unit_test(a_wrapped_descriptor_stays_open),
        cmocka_unit_test(what_is_no_regular_file_is_refused_without_waiting),
        cmocka_unit_test(paths_are_escaped_in_messages),
        cmocka_unit_test(an_output_has_its_name_only_after_the_commit),
        cmocka_unit_test(a_discarded_output_leaves_nothing),
        cmocka_unit_test(an_existing_target_needs_force),
        cmocka_unit_test(a_target_made_meanwhile_is_not_lost),
        cmocka_unit_test(a_link_is_replaced_not_followed),
        cmocka_unit_test(an_input_is_no_target_by_whatever_path),
        cmocka_unit_test(an_output_has_the_mode_of_its_input_or_of_what_it_replaces),
        cmocka_unit_test(a_document_has_the_mode_of_any_new_file),
        cmocka_unit_test(targets_that_cannot_be_are_refused),
        cmocka_unit_test(too_little_room_is_noticed_before_any_work),
        cmocka_unit_test(a_failed_write_names_the_byte),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
