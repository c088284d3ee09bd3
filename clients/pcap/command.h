/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A process that was started, and the pipes that it writes. */
struct command {
	int out, errors, pidfd;
	pid_t pid;
};

/* Starts a process; 0, or a number of errno: EPERM in a program with more rights than its user, as a setuid one. */
int command_start(struct command *child, const char *const *words);

/* Why a process was not started, for people, by that number. */
void command_refusal(int failed, char *why, size_t size);

/* Ends a process, and returns its exit status, 128 and more if a signal ended it, or -1 if that is unknown: the program
 * ignores SIGCHLD, or waits for every process. */
int command_finish(struct command *child, bool is_killed);

/* What a process that has closed its output said on standard error, without `error: ` and the end of the line. */
void command_complaint(const struct command *child, char *text, size_t size);

/* Runs a command for at most `timeout` milliseconds; the first bytes of its output as a string. Returns its exit status,
 * or -1. If it failed, `why` is the reason. An unknown status is 0 if there is output. */
int command_ask(const char *const *words, char *out, size_t size, int timeout, char *why, size_t why_size);

/* Milliseconds of the clock, and those until a time, at least 0. */
int64_t command_now(void);
int command_until(int64_t end);

/* Closes a descriptor, if it is one. */
void command_close(int *fd);

#endif
