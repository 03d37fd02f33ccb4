/* Frames on a socket between two processes of one program: kind, length, bytes. */
#include "check/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FRAME = 8 << 20 };
struct head {
    uint32_t kind, n;
};

enum ls_status ls_check_frame_send(int fd, enum ls_check_frame kind, const void *data, size_t n,
                                   struct ls_error *err)
{
    struct head head = {kind, (uint32_t)n};
    if (n > MAX_FRAME)
        return ls_error_set(err, LS_ERR_OVERFLOW, "%zu bytes of answers, at most %d are sent", n,
                            MAX_FRAME);
    LS_TRY(ls_file_write_all(fd, &head, sizeof head, "socket", err));
    return ls_file_write_all(fd, data, n, "socket", err);
}

enum ls_status ls_check_frame_doing(int fd, const char *doing, struct ls_error *err)
{
    return ls_check_frame_send(fd, LS_CHECK_DOING, doing, strlen(doing), err);
}

static enum ls_status read_all(int fd, void *data, size_t size, struct ls_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)data + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_error_errno(err, errno, "reading answers");
        if (n == 0)
            return LS_ERR_NOTFOUND;
        done += (size_t)n;
    }
    return LS_OK;
}

enum ls_status ls_check_frame_read(int fd, enum ls_check_frame *kind, char **data, size_t *n,
                                   struct ls_error *err)
{
    struct head head;
    LS_TRY(read_all(fd, &head, sizeof head, err));
    if (head.n > MAX_FRAME || head.kind > LS_CHECK_NO_PEERS)
        return ls_error_set(err, LS_ERR_INTERNAL, "a frame of kind %u and %u bytes", head.kind,
                            head.n);
    char *bytes = malloc((size_t)head.n + 1);
    if (!bytes)
        return ls_error_set(err, LS_ERR_NOMEM, "reading answers");
    enum ls_status status = read_all(fd, bytes, head.n, err);
    if (status != LS_OK) {
        free(bytes);
        return status;
    }
    bytes[head.n] = '\0';
    *kind = (enum ls_check_frame)head.kind;
    *data = bytes;
    *n = head.n;
    return LS_OK;
}
