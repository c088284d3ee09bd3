/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of `ringway`, as child processes of a program that did not expect to have any.
 */
#define _GNU_SOURCE
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Milliseconds that a process may take to end. */
#define END_TIMEOUT 1000

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* What `ringway` is called: RINGWAY_PROGRAM, if that is set. */
static const char *command_program(void)
{
	const char *name = getenv("RINGWAY_PROGRAM");

	return name != NULL && *name != '\0' ? name : "ringway";
}

void command_refusal(int failed, char *why, size_t size)
{
	if (getauxval(AT_SECURE))
		snprintf(why, size, "a program with more rights than its user starts no `ringway`");
	else
		snprintf(why, size, "%s: %s; RINGWAY_PROGRAM names the program", command_program(), strerror(failed));
}

int64_t command_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Milliseconds until `end`, for poll(). */
int command_until(int64_t end)
{
	int64_t left = end - command_now();

	return left > 0 ? (int)left : 0;
}

void command_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A pipe none of whose ends is a standard stream, which the child's would replace. */
static int make_pipe(int ends[2])
{
	int made[2], i;

	if (pipe2(made, O_CLOEXEC) != 0)
		return -1;
	for (i = 0; i < 2; i++) {
		ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, 3);
		close(made[i]);
	}
	if (ends[0] >= 0 && ends[1] >= 0)
		return 0;
	command_close(&ends[0]);
	command_close(&ends[1]);
	return -1;
}

/* Runs posix_spawnp() with these streams. The process has a group of its own, so that Ctrl-C ends the program first,
 * the signals of a new program, and no other descriptor. */
static int spawn(const char *const *words, int out, int errors, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int failed;

	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return ENOMEM;
	}
	posix_spawnattr_setflags(&attributes,
				 POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (!failed)
		failed = posix_spawn_file_actions_adddup2(&actions, out, 1);
	if (!failed)
		failed = posix_spawn_file_actions_adddup2(&actions, errors, 2);
	if (!failed)
		failed = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	if (!failed)
		failed = posix_spawnp(pid, command_program(), &actions, &attributes, (char *const *)words, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return failed;
}

int command_start(struct command *child, const char *const *words)
{
	int out[2], errors[2], failed;

	*child = (struct command){.out = -1, .errors = -1, .pidfd = -1};
	/* Attack: the user of a setuid program, who sets PATH, RINGWAY_PROGRAM and RINGWAY_RUN. */
	if (getauxval(AT_SECURE))
		return EPERM;
	if (make_pipe(out) != 0)
		return errno;
	if (make_pipe(errors) != 0) {
		failed = errno;
		close(out[0]);
		close(out[1]);
		return failed;
	}
	failed = spawn(words, out[1], errors[1], &child->pid);
	close(out[1]);
	close(errors[1]);
	child->out = out[0];
	child->errors = errors[0];
	if (failed) {
		command_close(&child->out);
		command_close(&child->errors);
		return failed;
	}
	child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	fcntl(child->out, F_SETFL, O_NONBLOCK);
	fcntl(child->errors, F_SETFL, O_NONBLOCK);
	return 0;
}

/* A program that gave up its rights may not signal the process, which ends as its pipe is closed. */
int command_finish(struct command *child, bool is_killed)
{
	siginfo_t info = {0};
	struct pollfd ended = {.fd = child->pidfd, .events = POLLIN};
	int status = -1;

	command_close(&child->out);
	command_close(&child->errors);
	if (child->pidfd >= 0) {
		if (is_killed)
			syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
		while (poll(&ended, 1, END_TIMEOUT) < 0 && errno == EINTR)
			;
		if (waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
			status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
	} else if (child->pid > 0) {
		/* The kernel has no pidfds, or no descriptor is left. */
		if (is_killed)
			kill(child->pid, SIGKILL);
		if (waitid(P_PID, (id_t)child->pid, &info, WEXITED) == 0)
			status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
	}
	child->pid = 0;
	command_close(&child->pidfd);
	return status;
}

void command_complaint(const struct command *child, char *text, size_t size)
{
	struct pollfd polled = {.fd = child->errors, .events = POLLIN};
	static const char intro[] = "error: ";
	ssize_t len;

	text[0] = '\0';
	/* The process has closed its output, and so ends now. */
	if (poll(&polled, 1, END_TIMEOUT) <= 0)
		return;
	len = read(child->errors, text, size - 1);
	text[len > 0 ? len : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (strncmp(text, intro, sizeof intro - 1) == 0)
		memmove(text, text + sizeof intro - 1, strlen(text + sizeof intro - 1) + 1);
}

int command_ask(const char *const *words, char *out, size_t size, int timeout, char *why, size_t why_size)
{
	int64_t end = command_now() + timeout;
	struct command child;
	bool is_late = false;
	size_t len = 0;
	int failed = command_start(&child, words), status;

	if (failed) {
		command_refusal(failed, why, why_size);
		return -1;
	}
	for (;;) {
		struct pollfd polled = {.fd = child.out, .events = POLLIN};
		char rest[4096];
		bool is_full = len + 1 >= size;
		ssize_t got;

		if (poll(&polled, 1, command_until(end)) == 0) {
			is_late = true;
			break;
		}
		got = is_full ? read(child.out, rest, sizeof rest) : read(child.out, out + len, size - 1 - len);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			break;
		if (got > 0 && !is_full)
			len += (size_t)got;
	}
	out[len] = '\0';
	if (is_late)
		snprintf(why, why_size, "the fabric does not answer");
	else
		command_complaint(&child, why, why_size);
	status = command_finish(&child, is_late);
	if (status == -1 && len > 0)
		status = 0;
	return is_late ? -1 : status;
}
