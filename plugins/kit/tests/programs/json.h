/* Read JSON into values of fixed storage, and write numbers: what a subject in C needs, without a library. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { J_NULL, J_FALSE, J_TRUE, J_NUMBER, J_TEXT, J_LIST, J_OBJECT } Type;

/* A value; the items of a list or an object are a chain, and those of an object have keys. */
typedef struct Value {
    Type type;
    double number;
    char *text, *key;
    int count;
    struct Value *first, *next;
} Value;

static Value values[200000];
static int value_count;
static char *at; /* the place in the line, which is changed: texts are ended in it */

static void spaces(void) { at += strspn(at, " \t\r\n"); }

static char *read_text(void) {
    char *out = ++at, *start = at;
    for (; *at != '"'; at++) {
        if (!*at || (unsigned char)*at < 32) return NULL;
        if (*at != '\\') { *out++ = *at; continue; }
        at++;
        if (*at == 'u') { /* other characters than ASCII count as one that no name has */
            char code[5] = {0};
            for (int i = 0; i < 4; i++) {
                if (!isxdigit((unsigned char)at[1])) return NULL;
                code[i] = *++at;
            }
            long number = strtol(code, NULL, 16);
            *out++ = number && number < 128 ? (char)number : '?';
        } else {
            static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
            const char *place = *at ? strchr(letters, *at) : NULL;
            if (!place) return NULL;
            *out++ = meant[place - letters];
        }
    }
    at++;
    *out = 0;
    return start;
}

/* Return the next value of the line, or NULL if there is none. */
static Value *read_value(int depth) {
    if (depth > 60 || value_count == 200000) return NULL;
    Value *value = &values[value_count++];
    memset(value, 0, sizeof *value);
    spaces();
    if (*at == '{' || *at == '[') {
        char end = *at == '{' ? '}' : ']';
        Value **place = &value->first;
        value->type = *at == '{' ? J_OBJECT : J_LIST;
        at++;
        for (spaces(); *at != end; spaces()) {
            char *key = NULL;
            if (value->count && *at++ != ',') return NULL;
            spaces();
            if (value->type == J_OBJECT) {
                if (*at != '"' || !(key = read_text())) return NULL;
                spaces();
                if (*at++ != ':') return NULL;
            }
            if (!(*place = read_value(depth + 1))) return NULL;
            (*place)->key = key;
            place = &(*place)->next;
            value->count++;
        }
        at++;
        return value;
    }
    if (*at == '"') {
        value->type = J_TEXT;
        return (value->text = read_text()) ? value : NULL;
    }
    static const struct { const char *word; Type type; } words[] = {{"null", J_NULL}, {"false", J_FALSE}, {"true", J_TRUE}};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i].word);
        if (!strncmp(at, words[i].word, length)) {
            at += length;
            value->type = words[i].type;
            return value;
        }
    }
    if (*at != '-' && !isdigit((unsigned char)*at)) return NULL;
    char *end;
    value->type = J_NUMBER;
    value->number = strtod(at, &end);
    if (end == at) return NULL;
    at = end;
    return value;
}

static Value *read_line(char *line) {
    at = line;
    value_count = 0;
    Value *value = read_value(0);
    spaces();
    return value && !*at ? value : NULL;
}

static Value *get(const Value *object, const char *key) {
    if (object && object->type == J_OBJECT)
        for (Value *item = object->first; item; item = item->next)
            if (!strcmp(item->key, key)) return item;
    return NULL;
}

static inline Value *item(const Value *list, int index) {
    Value *value = list->first;
    while (index-- && value) value = value->next;
    return value;
}

static int is_whole(const Value *value) {
    return value && value->type == J_NUMBER && value->number == floor(value->number) && fabs(value->number) < 9e15;
}

static int is_text(const Value *value, const char *text) {
    return value && value->type == J_TEXT && !strcmp(value->text, text);
}

/* Print a number so that no digit is lost; null stands for one that is not finite. */
static void number(double value) {
    if (isfinite(value)) printf("%.17g", value);
    else printf("null");
}

static void numbers(const char *name, const double *list, int count) {
    printf("\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        if (i) putchar(',');
        number(list[i]);
    }
    putchar(']');
}

/* An error answer; the messages of these programs need no escapes. */
static void error_answer(const char *code, const char *message) {
    printf("\"error\":{\"code\":\"%s\",\"message\":\"%s\"}", code, message);
}

/* A generator of random numbers (splitmix64), and normally distributed ones by Box and Muller. */
static double uniform(unsigned long long *state) {
    unsigned long long z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double normal(unsigned long long *state) {
    double one = 1 - uniform(state);
    return sqrt(-2 * log(one)) * cos(2 * acos(-1) * uniform(state));
}
