/* The tokens of one file of a job description. libconfig's own scanner wraps integers that are too
 * large, cuts strings at a NUL and says no more than "syntax error"; this one looks first. */
#include "job/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* What a value without quotes may consist of: enough to name the whole word in a message. */
static bool is_word(char c)
{
    return is_letter(c) || is_digit(c) || (c && strchr("_-+./~%@$", c));
}

static enum ls_job_token hexadecimal(const char *text, size_t len, int64_t *integer)
{
    for (size_t i = 2; i < len; i++)
        if (!is_digit(text[i]) && !(is_letter(text[i]) && (text[i] | 32) <= 'f'))
            return LS_TOK_WORD;
    errno = 0;
    unsigned long long u = strtoull(text, NULL, 16);
    if (errno == ERANGE || u > INT64_MAX)
        return LS_TOK_BAD;
    *integer = (int64_t)u;
    return LS_TOK_INT;
}

enum ls_job_token ls_job_number(const char *text, size_t len, int64_t *integer, double *real)
{
    size_t i = 0, digits = 0;
    bool is_float = false;
    if (len > 2 && text[0] == '0' && (text[1] | 32) == 'x')
        return hexadecimal(text, len, integer);
    if (i < len && (text[i] == '-' || text[i] == '+'))
        i++;
    for (; i < len && is_digit(text[i]); i++)
        digits++;
    if (i < len && text[i] == '.') {
        is_float = true;
        for (i++; i < len && is_digit(text[i]); i++)
            digits++;
    }
    if (digits == 0)
        return LS_TOK_WORD;
    if (i < len && (text[i] | 32) == 'e') {
        is_float = true;
        i++;
        if (i < len && (text[i] == '-' || text[i] == '+'))
            i++;
        if (i == len || !is_digit(text[i]))
            return LS_TOK_WORD;
        while (i < len && is_digit(text[i]))
            i++;
    }
    for (int k = 0; k < 2 && !is_float && i < len && text[i] == 'L'; k++)
        i++; /* libconfig's mark of a 64-bit integer */
    if (i != len)
        return LS_TOK_WORD;
    errno = 0;
    if (is_float) {
        *real = strtod(text, NULL);
        return errno == ERANGE && (*real > 1 || *real < -1) ? LS_TOK_BAD : LS_TOK_FLOAT;
    }
    *integer = strtoll(text, NULL, 10);
    return errno == ERANGE ? LS_TOK_BAD : LS_TOK_INT;
}

static void problem(struct ls_job_lexer *lx, enum ls_job_token token, const char *text)
{
    ls_job_problem(lx->problems, lx->place, "%s", text);
    lx->token = token;
}

/* A text without lines (a --set value) stays at 0. */
static void next_line(struct ls_job_lexer *lx)
{
    lx->line += lx->line > 0;
}

/* Skips white space and comments; false after a comment that never ends. */
static bool skip(struct ls_job_lexer *lx)
{
    while (lx->at < lx->end) {
        char c = *lx->at, next = lx->at + 1 < lx->end ? lx->at[1] : '\0';
        if (c == '\n')
            next_line(lx);
        if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\n') {
            lx->at++;
        } else if (c == '#' || (c == '/' && next == '/')) {
            while (lx->at < lx->end && *lx->at != '\n')
                lx->at++;
        } else if (c == '/' && next == '*') {
            lx->place.line = lx->line;
            for (lx->at += 2;; lx->at++) {
                if (lx->end - lx->at < 2) {
                    problem(lx, LS_TOK_FATAL, "found /* without an end, expected */ behind it");
                    return false;
                }
                if (*lx->at == '\n')
                    next_line(lx);
                if (lx->at[0] == '*' && lx->at[1] == '/')
                    break;
            }
            lx->at += 2;
        } else {
            break;
        }
    }
    return true;
}

size_t ls_job_utf8(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    /* overlong forms, surrogates, past the last code point */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : is_letter(c) && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Decodes a string; the token is BAD when it is closed but cannot be taken. */
static void string(struct ls_job_lexer *lx)
{
    const char *bad = NULL;
    size_t n = 0;
    for (lx->at++;; lx->at++) {
        if (lx->at == lx->end || *lx->at == '\n') {
            problem(lx, LS_TOK_FATAL,
                    "found a string without an end, expected \" on the same line");
            return;
        }
        char c = *lx->at;
        if (c == '"')
            break;
        if (c == '\\') {
            char e = lx->at + 1 < lx->end ? lx->at[1] : '\0';
            int high = lx->end - lx->at > 3 ? hex_digit(lx->at[2]) : -1;
            int low = high >= 0 ? hex_digit(lx->at[3]) : -1;
            if (e == '\\' || e == '"') {
                c = e;
                lx->at++;
            } else if (e == 'x' && low >= 0) {
                c = (char)(high * 16 + low);
                lx->at += 3;
            } else if (e && e != '\n' && strchr("nrtfabv", e)) {
                c = '\n';
                lx->at++;
            } else {
                bad = "found a backslash in a string, expected \\\\ for a backslash, \\\" for a "
                      "quote "
                      "or \\xHH for a byte";
            }
        }
        if ((unsigned char)c < 0x20 || c == 0x7F)
            bad = "found a control character in a string, expected printable text";
        if (n < LS_JOB_MAX_TEXT)
            lx->text[n] = c;
        n++;
    }
    lx->at++;
    if (n > LS_JOB_MAX_TEXT) {
        ls_job_problem(lx->problems, lx->place, "found a string of %zu bytes, expected at most %d",
                       n, LS_JOB_MAX_TEXT);
        lx->token = LS_TOK_BAD;
        return;
    }
    lx->len = n;
    lx->text[n] = '\0';
    for (size_t i = 0, k; i < n && !bad; i += k) {
        k = ls_job_utf8(lx->text + i, n - i);
        if (k == 0)
            bad = "found bytes that are not UTF-8 in a string, expected UTF-8 text";
    }
    lx->token = LS_TOK_STRING;
    if (bad)
        problem(lx, LS_TOK_BAD, bad);
}

static void word(struct ls_job_lexer *lx)
{
    const char *start = lx->at;
    size_t room = sizeof lx->text - 1;
    bool name = is_letter(*start);
    for (; lx->at < lx->end && is_word(*lx->at); lx->at++) {
        if (*lx->at == '/' && lx->at + 1 < lx->end && (lx->at[1] == '/' || lx->at[1] == '*'))
            break; /* a comment */
        name &= is_letter(*lx->at) || is_digit(*lx->at) || *lx->at == '_' || *lx->at == '-';
    }
    size_t len = (size_t)(lx->at - start);
    if (len > 64 && (is_digit(*start) || *start == '-' || *start == '+' || *start == '.')) {
        ls_job_problem(lx->problems, lx->place,
                       "found a number of %zu characters, expected at most 64", len);
        lx->token = LS_TOK_BAD;
        return;
    }
    if (len > room) {
        problem(lx, LS_TOK_FATAL, "found a word of more than 4095 bytes, expected key = value");
        return;
    }
    memcpy(lx->text, start, len);
    lx->text[len] = '\0';
    lx->len = len;
    double real;
    if (!strcasecmp(lx->text, "true") || !strcasecmp(lx->text, "false"))
        lx->token = LS_TOK_BOOL;
    else if (name)
        lx->token = LS_TOK_NAME;
    else
        lx->token = ls_job_number(lx->text, len, &lx->integer, &real);
    if (lx->token == LS_TOK_BAD)
        ls_job_problem(lx->problems, lx->place, "found the number %s, which does not fit 64 bits",
                       lx->text);
}

static void include(struct ls_job_lexer *lx)
{
    static const char keyword[] = "@include";
    size_t n = sizeof keyword - 1;
    if ((size_t)(lx->end - lx->at) >= n && !memcmp(lx->at, keyword, n)) {
        lx->at += n;
        while (lx->at < lx->end && (*lx->at == ' ' || *lx->at == '\t'))
            lx->at++;
        if (lx->at < lx->end && *lx->at == '"') {
            string(lx);
            if (lx->token == LS_TOK_STRING)
                lx->token = LS_TOK_INCLUDE;
            return;
        }
    }
    problem(lx, LS_TOK_FATAL, "found @, expected @include \"file\"");
}

void ls_job_lex(struct ls_job_lexer *lx)
{
    lx->place = (struct ls_job_place){lx->file, lx->line, *lx->order};
    lx->len = 0;
    lx->text[0] = '\0';
    if (!skip(lx))
        return;
    if (lx->line > 0)
        lx->place.line = lx->line;
    if (lx->at == lx->end) {
        lx->token = LS_TOK_END;
        return;
    }
    char c = *lx->at;
    if (c && strchr("=:;,{}()[]", c)) {
        lx->token = LS_TOK_PUNCT;
        lx->text[0] = c;
        lx->text[1] = '\0';
        lx->len = 1;
        lx->at++;
    } else if (c == '"') {
        string(lx);
    } else if (c == '@') {
        include(lx);
    } else if (is_word(c)) {
        word(lx);
    } else if (c == '\0') {
        problem(lx, LS_TOK_FATAL, "found a NUL byte, expected a text file");
    } else if (c >= 0x21 && c < 0x7F) {
        ls_job_problem(lx->problems, lx->place, "found the character %c, expected key = value", c);
        lx->token = LS_TOK_FATAL;
    } else {
        ls_job_problem(lx->problems, lx->place, "found the byte 0x%02x, expected key = value",
                       (unsigned)(unsigned char)c);
        lx->token = LS_TOK_FATAL;
    }
}
