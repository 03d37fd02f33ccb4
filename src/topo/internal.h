/* What the files of this room share: reading numbers out of text, and messages that show the place. */
#ifndef LS_TOPO_INTERNAL_H
#define LS_TOPO_INTERNAL_H

#include "topo/topo.h"

/* Records LS_ERR_FORMAT (or `status`) as "at character 7 of 'text': message"; of a long text only the
 * surroundings are shown, and what is not printable ASCII as '?'. Returns `status`. */
enum ls_status ls_topo_bad(struct ls_error *err, enum ls_status status, const char *text, size_t at,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Copies at most `max` printable characters of `text`, with "..." where it is longer. */
const char *ls_topo_show(const char *text, char out[static 84]);
/* Reads decimal digits at *at and moves behind them. False: no digit, or a value above `max`; *at
 * then stays. Leading zeros are fine in any number. */
bool ls_topo_digits(const char *text, size_t *at, uint64_t max, uint64_t *value);

#endif
