/* Completion records as text: four numbers and a message. */
#include "keep/keep.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <string.h>

#define MARK "lockstep-record 2"

size_t ls_record_write(const struct ls_record *record, char text[static LS_RECORD_MAX])
{
    int n =
        snprintf(text, LS_RECORD_MAX, MARK " %d %d %" PRId64 " %d\n%s\n.\n", (int)record->status,
                 record->code, record->steps, record->suspect, record->message);
    return n > 0 && n < LS_RECORD_MAX ? (size_t)n : 0;
}

bool ls_record_read(const char *text, size_t n, struct ls_record *record)
{
    char copy[LS_RECORD_MAX];
    int status, code, suspect, at = 0;
    int64_t steps;
    if (n < 4 || n >= sizeof copy || memcmp(text + n - 3, "\n.\n", 3) != 0)
        return false;
    memcpy(copy, text, n);
    copy[n - 3] = '\0';
    if (sscanf(copy, MARK " %d %d %" SCNd64 " %d%n", &status, &code, &steps, &suspect, &at) != 4 ||
        copy[at] != '\n' || status < 0 || code < 0 || code > 255 || suspect < 0 ||
        suspect > LS_WIRE_MOST_RANKS)
        return false;
    *record = (struct ls_record){
        .status = (enum ls_status)status, .code = code, .steps = steps, .suspect = suspect};
    size_t len = strlen(copy + at + 1);
    if (len >= sizeof record->message)
        len = sizeof record->message - 1;
    memcpy(record->message, copy + at + 1, len);
    return true;
}
