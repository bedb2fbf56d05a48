/* Four recorded walks on a line: source data of T/CCF 0002-2025, written from docs/conformance.md. `records` is correct;
 * with the name of a fault it is the one of that name in source_faults.py.     cc -O1 -o records records.c -lm
 */
#include "json.h"
#include <time.h>

enum { WALKS = 4, ROWS = 18, MOST = 50000 };

static const char *kind = "Records";
static const int lengths[WALKS] = {3, 6, 4, 5};
static int place[WALKS][7], row_walk[ROWS], row_step[ROWS];
static double speed[WALKS][7][2], push[WALKS][6][2], reward[WALKS][6];
static unsigned long long state;
static int drawn[MOST];
static double weights[MOST];

static const char *description =
    "\"env_id\":\"walks\",\"calls\":[\"describe\",\"init\",\"sample_steps\",\"sample_trajectories\",\"get_all_actions\","
    "\"statistics\",\"close\"],"
    "\"observation\":{\"name\":\"walk_observation\",\"fields\":["
    "{\"name\":\"place\",\"shape\":[],\"dtype\":\"int32\",\"low\":0,\"high\":100,\"unit\":\"1\","
    "\"meaning\":\"where the walker is\"},"
    "{\"name\":\"speed\",\"shape\":[2],\"dtype\":\"float32\",\"unit\":\"m/s\",\"meaning\":\"of the walker\"}]},"
    "\"action\":{\"name\":\"walk_action\",\"fields\":["
    "{\"name\":\"push\",\"shape\":[2],\"dtype\":\"float32\",\"unit\":\"N\",\"meaning\":\"on the walker\"}]}";

/* What a request asks for. */
typedef struct { double min_return, beta; int by_return, replace; } Options;

static int is(const char *name) { return !strcmp(kind, name); }

static double total(int walk) {
    double sum = 0;
    for (int step = 0; step < lengths[walk]; step++) sum += reward[walk][step];
    return sum;
}

static int passes(int walk, const Options *options) {
    if (is("ThresholdIsUpsideDown") && isfinite(options->min_return)) return total(walk) <= options->min_return;
    return total(walk) >= options->min_return;
}

static void record(void) {
    unsigned long long fixed = 7;
    int row = 0;
    for (int walk = 0; walk < WALKS; walk++)
        for (int step = 0; step <= lengths[walk]; step++) {
            place[walk][step] = step + (walk < 2 ? 0 : 10 * walk);
            for (int i = 0; i < 2; i++) speed[walk][step][i] = step ? (float)normal(&fixed) : 0;
            if (step == lengths[walk]) continue;
            for (int i = 0; i < 2; i++) push[walk][step][i] = (float)normal(&fixed);
            reward[walk][step] = normal(&fixed) + walk;
            row_walk[row] = walk;
            row_step[row++] = step;
        }
}

/* Read the options of a request; return 0 if one is unknown. */
static int read_options(const Value *extra, Options *options) {
    *options = (Options){-INFINITY, 0, 0, 1};
    for (const Value *option = extra ? extra->first : NULL; option; option = option->next) {
        if (!strcmp(option->key, "min_return") && option->type == J_NUMBER) options->min_return = option->number;
        else if (!strcmp(option->key, "beta") && option->type == J_NUMBER) options->beta = option->number;
        else if (!strcmp(option->key, "replace")) options->replace = option->type == J_TRUE;
        else if (!strcmp(option->key, "priority")) options->by_return = is_text(option, "return");
        else return 0;
    }
    return 1;
}

/* Draw rows, each with the chance of its walk; return 0 if too few are left. */
static int pick(int size, const int *walks, int count, const Options *options) {
    double chance[ROWS], left[ROWS], least = INFINITY, lowest = INFINITY, sum = 0;
    int possible = 0;
    for (int walk = 0; walk < WALKS; walk++) lowest = fmin(lowest, total(walk));
    for (int row = 0; row < count; row++) {
        chance[row] = passes(walks[row], options) ? (options->by_return ? total(walks[row]) - lowest + 0.2 : 1) : 0;
        left[row] = chance[row];
        sum += chance[row];
        if (chance[row] > 0) possible++, least = fmin(least, chance[row]);
    }
    if (!possible || size > MOST || (!options->replace && size > possible)) return 0;
    for (int i = 0; i < size; i++) {
        double mark = uniform(&state) * sum;
        int row = 0;
        while (row < count - 1 && (mark >= left[row] || left[row] == 0)) mark -= left[row++];
        while (left[row] == 0) row--;
        drawn[i] = row;
        weights[i] = pow(chance[row] / least, -options->beta);
        if (!options->replace) sum -= left[row], left[row] = 0;
    }
    return 1;
}

/* -- tables ------------------------------------------------------------------------------------------------------- */

static void put(const char *text, int follows) { printf("%s%s", follows ? "," : "", text); }

static void vector(const double *values, int follows) {
    put("[", follows);
    number(values[0]);
    putchar(',');
    number(values[1]);
    putchar(']');
}

static void structure(const char *name, const int *walks, const int *steps, int count, int later) {
    printf("\"%s\":{\"place\":[", name);
    for (int i = 0; i < count; i++) put("", i), printf("%d", place[walks[i]][steps[i] + later]);
    printf("],\"speed\":[");
    for (int i = 0; i < count; i++) vector(speed[walks[i]][steps[i] + later], i);
    printf("]},");
}

/* Print the entries of Table 5 with a leading axis. */
static void table(const int *walks, const int *steps, int count) {
    printf("\"env_id\":[");
    for (int i = 0; i < count; i++) put("", i), printf("\"walk-%d\"", walks[i] / 2);
    printf("],\"frame_no\":[");
    for (int i = 0; i < count; i++) put("", i), printf("%d", steps[i]);
    printf("],");
    structure("observation", walks, steps, count, 0);
    structure("next_observation", walks, steps, count, 1);
    printf("\"action\":{\"push\":[");
    for (int i = 0; i < count; i++) vector(push[walks[i]][steps[i]], i);
    printf("]},\"reward\":[");
    for (int i = 0; i < count; i++) put("", i), number(reward[walks[i]][steps[i]]);
    printf("],\"done\":[");
    for (int i = 0; i < count; i++)
        put("", i), printf("%d", (steps[i] + 1 == lengths[walks[i]]) * (is("DoneIsTwo") ? 2 : 1));
    putchar(']');
}

/* -- calls -------------------------------------------------------------------------------------------------------- */

static void init(const Value *options) {
    for (const Value *option = options ? options->first : NULL; option; option = option->next)
        if (strcmp(option->key, "seed") || !is_whole(option)) { error_answer("option", "allowed is seed"); return; }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const Value *seed = is("SeedIsForgotten") ? NULL : get(options, "seed");
    state = seed ? (unsigned long long)seed->number : (unsigned long long)now.tv_nsec;
    printf("\"initialised\":true");
}

static void sample_steps(int size, const Options *options) {
    static int walks[MOST], steps[MOST];
    if (!pick(size, row_walk, ROWS, options)) { error_answer("option", "too few steps are left"); return; }
    for (int i = 0; i < size; i++) walks[i] = row_walk[drawn[i]], steps[i] = row_step[drawn[i]];
    printf("\"steps\":{");
    table(walks, steps, size);
    printf(",\"extra_info\":{\"index\":[");
    for (int i = 0; i < size; i++) put("", i), printf("%d", drawn[i]);
    printf("],");
    numbers("weights", weights, size);
    printf("}}");
}

static void sample_trajectories(int size, const Options *options) {
    static const int all[WALKS] = {0, 1, 2, 3};
    if (!pick(size, all, WALKS, options)) { error_answer("option", "too few trajectories are left"); return; }
    printf("\"trajectories\":[");
    for (int i = 0; i < size; i++) {
        int walk = drawn[i], count = lengths[walk], walks[6], steps[6];
        for (int j = 0; j < count; j++) walks[j] = walk, steps[j] = is("Backwards") ? count - 1 - j : j;
        put("{", i);
        printf("\"env_id\":\"walk-%d\",\"trajectory_id\":%d,\"steps_set\":{", walk / 2, walk);
        table(walks, steps, count);
        printf("},\"extra_info\":{\"length\":%d,\"terminated\":1,\"truncated\":0,\"return\":", count);
        number(total(walk));
        printf("}}");
    }
    putchar(']');
}

static void get_all_actions(void) {
    printf("\"actions\":{\"env_id\":\"walk-0\",\"frame_no\":0,\"action\":{\"push\":[");
    vector(push[0][0], 0);
    if (!is("ActionsOfOneWalk")) vector(push[1][0], 1);
    printf("]}}");
}

static void statistics(const Options *options) {
    double sum = 0, squares = 0, most = -INFINITY, places = 0;
    int count = 0, steps = 0, lowest = 1000;
    for (int walk = 0; walk < WALKS; walk++) {
        if (!passes(walk, options)) continue;
        count++;
        sum += total(walk);
        most = fmax(most, total(walk));
        for (int step = 0; step < lengths[walk]; step++, steps++) {
            places += place[walk][step];
            if (place[walk][step] < lowest) lowest = place[walk][step];
        }
    }
    for (int walk = 0; walk < WALKS; walk++)
        if (passes(walk, options)) squares += (total(walk) - sum / count) * (total(walk) - sum / count);
    printf("\"statistics\":{\"trajectories\":%d,\"steps\":%d,\"return\":{\"mean\":", count,
           steps + (is("CountsAreOff") ? count : 0));
    number(sum / count);
    printf(",\"std\":");
    number(sqrt(squares / count));
    printf(",\"max\":");
    number(most);
    printf("},\"fields\":{\"observation.place\":{\"min\":%d,\"mean\":", lowest);
    number(places / steps);
    printf("}}}");
}

static void carry_out(const Value *request) {
    const Value *call = get(request, "call"), *size = get(request, "batch_size");
    Options options;
    if (!size) size = get(request, "trajectory_size");
    if (is_text(call, "describe")) printf("%s", description);
    else if (is_text(call, "init")) init(get(request, "options"));
    else if (is_text(call, "close")) printf("\"closed\":true");
    else if (!read_options(get(request, "extra_info"), &options))
        error_answer("option", "allowed are min_return, priority, beta and replace");
    else if (is_text(call, "get_all_actions")) get_all_actions();
    else if (is_text(call, "statistics")) statistics(&options);
    else if (!is_text(call, "sample_steps") && !is_text(call, "sample_trajectories"))
        error_answer("request", "it is not JSON, or the call is unknown");
    else if (!is_whole(size) || size->number < 1) error_answer("option", "a size is a whole number from 1");
    else if (is_text(call, "sample_steps")) sample_steps((int)fmin(size->number, 1e9), &options);
    else sample_trajectories((int)fmin(size->number, 1e9), &options);
}

int main(int count, char **words) {
    char *line = NULL;
    size_t size = 0;
    if (count > 1) kind = words[1];
    record();
    while (getline(&line, &size, stdin) > 0) {
        const Value *request = read_line(line), *id = get(request, "id");
        putchar('{');
        if (is_whole(id)) printf("\"id\":%.0f,", id->number);
        carry_out(request);
        printf("}\n");
        fflush(stdout);
    }
    free(line);
    return 0;
}
