/*
 * test_digest.c - the SHA-256 of files: the examples of FIPS 180 and what sha256sum says of others,
 * of lengths around a block of the hash and around the buffer that files are read through.
 */
#include "own_folder.h"

#include "lib/base/digest.h"

#include <stdlib.h>

static const char *path_of(const char *name)
{
    return in_folder(&folder, name);
}

static void expect_digest(const char *path, const char *expected)
{
    struct qp_digest digest;
    struct qplan_error err;
    struct qp_file file;
    OK(qp_file_open(&file, path, &err), &err);
    OK(qp_digest_file(&digest, &file, NULL, &err), &err);
    qp_file_close(&file);
    assert_string_equal(digest.text, expected);
}

/* FIPS 180-2, appendix B, and the empty message. */
static void examples_of_the_standard_are_right(void **state)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char *million = malloc(1000000);
    (void)state;
    assert_non_null(million);
    memset(million, 'a', 1000000);
    write_file(path_of("empty"), "", 0);
    expect_digest(path_of("empty"),
                  "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b"
                  "7852b855");
    write_file(path_of("abc"), "abc", 3);
    expect_digest(path_of("abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61"
                                  "f20015ad");
    write_file(path_of("two"), two_blocks, sizeof two_blocks - 1);
    expect_digest(path_of("two"), "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd4"
                                  "19db06c1");
    write_file(path_of("million"), million, 1000000);
    expect_digest(path_of("million"),
                  "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39"
                  "ccc7112cd0");
    free(million);
}

/* The file of so many bytes i * 7 + 3, and what sha256sum prints of it. */
static void expect_as_sha256sum(size_t n)
{
    char command[1024], expected[QP_DIGEST_TEXT] = "sha256:";
    char *bytes = malloc(n + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(i * 7 + 3);
    write_file(path_of("bytes"), bytes, n);
    free(bytes);
    (void)snprintf(command, sizeof command, "sha256sum '%s'", path_of("bytes"));
    FILE *sum = popen(command, "r");
    assert_non_null(sum);
    assert_int_equal(fread(expected + 7, 1, 64, sum), 64);
    (void)pclose(sum);
    expect_digest(path_of("bytes"), expected);
}

static void files_have_the_digest_that_sha256sum_prints(void **state)
{
    static const size_t lengths[] = {
        1, 55, 56, 57, 63, 64, 65, 119, 262143, 262144, 262145, 524288, 3 * 262144 + 1};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        expect_as_sha256sum(lengths[i]);
}

static void a_file_that_became_shorter_is_an_error(void **state)
{
    struct qp_digest digest;
    struct qplan_error err;
    struct qp_file file;
    (void)state;
    write_file(path_of("short"), "0123456789", 10);
    OK(qp_file_open(&file, path_of("short"), &err), &err);
    write_file(path_of("short"), "0123", 4);
    assert_int_equal(qp_digest_file(&digest, &file, NULL, &err), QPLAN_ERR_IO);
    assert_non_null(strstr(err.message, "became shorter"));
    qp_file_close(&file);
}

static const char good[] =
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

static void only_the_canonical_text_is_read(void **state)
{
    char text[QP_DIGEST_TEXT];
    struct qp_digest digest;
    (void)state;
    assert_true(qp_digest_read(&digest, good, sizeof good - 1));
    assert_string_equal(digest.text, good);
    assert_false(qp_digest_read(&digest, good, sizeof good - 2));
    assert_false(qp_digest_read(&digest, good, sizeof good));
    assert_false(qp_digest_read(&digest, "", 0));
    for (size_t i = 0; i < sizeof good - 1; i++) {
        static const char others[] = {'A', 'g', ' ', '\0', '/', ':', '\x80'};
        for (size_t k = 0; k < sizeof others; k++) {
            memcpy(text, good, sizeof good);
            text[i] = others[k];
            assert_int_equal(qp_digest_read(&digest, text, sizeof good - 1), text[i] == good[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_standard_are_right),
        cmocka_unit_test(files_have_the_digest_that_sha256sum_prints),
        cmocka_unit_test(a_file_that_became_shorter_is_an_error),
        cmocka_unit_test(only_the_canonical_text_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
