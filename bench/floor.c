/* The floor of running many short jobs: start a program, its output in two files, wait for it, again and again.
 *
 * floor FOLDER COUNT: two processes, each of which does half of COUNT. Prints one line of JSON: seconds from the first start to the
 * last end, and CPU seconds of the spawning processes and of what they started.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 2 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double cpu(int who) {
    struct rusage usage;
    getrusage(who, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           ((double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec) / 1e6;
}

static void run(const char *folder, int process, int count) {
    char *arguments[] = {"/bin/true", NULL}, *environment[] = {NULL}, path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, process); /* of its own: two that fill one folder wait for each other */
    if (mkdir(path, 0700) != 0) fail(path);
    for (int job = 0; job < count; job++) {
        int files[2];
        for (int stream = 0; stream < 2; stream++) {
            snprintf(path, sizeof path, "%s/%d/%d.%s", folder, process, job, stream ? "err" : "out");
            files[stream] = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            if (files[stream] < 0) fail(path);
        }
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, files[0], 1);
        posix_spawn_file_actions_adddup2(&actions, files[1], 2);
        pid_t child;
        int status;
        if (posix_spawn(&child, arguments[0], &actions, NULL, arguments, environment) != 0) fail("posix_spawn");
        posix_spawn_file_actions_destroy(&actions);
        if (waitpid(child, &status, 0) != child || status != 0) fail("waitpid");
        close(files[0]);
        close(files[1]);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: floor FOLDER COUNT\n");
        return 2;
    }
    int count = atoi(argv[2]), pipes[2];
    if (pipe(pipes) != 0) fail("pipe");
    double begin = now(), own = 0, children = 0;
    for (int process = 0; process < PROCESSES; process++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            run(argv[1], process, count / PROCESSES);
            double used[2] = {cpu(RUSAGE_SELF), cpu(RUSAGE_CHILDREN)};
            if (write(pipes[1], used, sizeof used) != sizeof used) fail("write");
            _exit(0);
        }
    }
    for (int process = 0; process < PROCESSES; process++) {
        double used[2];
        int status;
        if (read(pipes[0], used, sizeof used) != sizeof used) fail("read");
        if (wait(&status) < 0 || status != 0) fail("wait");
        own += used[0];
        children += used[1];
    }
    printf("{\"seconds\": %.6f, \"own_cpu\": %.6f, \"children_cpu\": %.6f}\n", now() - begin, own, children);
    return 0;
}
