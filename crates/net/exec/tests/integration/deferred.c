/* Calls on a connection whose other end returns each byte, while signals come. The first argument says what is done. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); fflush(stdout); _exit(1); } } while (0)

static int s, other, set;
static pthread_t caller;
static volatile unsigned handled;
static volatile int stop;

static int connection(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, "10.0.0.1", &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static void exchange(int fd, unsigned round) {
    char out[600], in[600];
    unsigned len = 1 + round * 7 % sizeof out, done = 0;
    for (unsigned at = 0; at < len; at++) out[at] = round + at;
    while (done < len) {
        long sent = send(fd, out + done, len - done, 0);
        if (sent > 0) done += sent; else CHECK(errno == EINTR);
    }
    for (done = 0; done < len;) {
        struct epoll_event event;
        if (round % 3 == 0) CHECK(epoll_wait(set, &event, 1, -1) >= 0 || errno == EINTR);
        long got = recv(fd, in + done, len - done, 0);
        if (got > 0) done += got; else CHECK(got < 0 && errno == EINTR);
    }
    CHECK(memcmp(in, out, len) == 0);
}

static void begin(void) {
    caller = pthread_self();
    s = connection();
    other = connection();
    set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = s}};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, s, &event) == 0);
    for (unsigned round = 0; round < 10; round++) { exchange(s, 3 * round); exchange(other, 3 * round + 1); }
}

static void on(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(number, &action, 0) == 0);
}

/* The kernel's handler of a signal. */
static unsigned long kernels(int number) {
    unsigned long action[4] = {0};
    long rax = SYS_rt_sigaction;
    register long r10 __asm__("r10") = 8;
    __asm__ volatile("syscall" : "+a"(rax) : "D"((long)number), "S"(0L), "d"(action), "r"(r10)
                     : "rcx", "r11", "memory");
    return action[0];
}

/* A handler that makes a call on a direct connection. */
static void count(int number) {
    char byte;
    CHECK(recv(other, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    errno = 0;
    handled++;
}

/* Sends each signal when the one before was handled. */
static void *send_counted(void *unused) {
    for (unsigned sent = 0; sent < 10000; sent++) {
        while (handled < sent) sched_yield();
        if (sent % 2) pthread_kill(caller, SIGUSR1); else kill(getpid(), SIGUSR1);
    }
    return 0;
}

static void counted(int restarts) {
    on(SIGUSR1, count, restarts ? SA_RESTART : 0);
    pthread_t sender;
    pthread_create(&sender, 0, send_counted, 0);
    unsigned round = 0;
    while (handled < 10000) exchange(s, round++);
    pthread_join(sender, 0);
    exchange(s, 0);
    CHECK(handled == 10000);
}

static volatile unsigned next;
static void in_order(int number, siginfo_t *info, void *context) {
    CHECK(info->si_code == SI_QUEUE && info->si_value.sival_int == (int)next);
    next++;
}

static void *send_queued(void *unused) {
    for (unsigned value = 0; value < 10000; value++) {
        union sigval with = {.sival_int = value};
        while (pthread_sigqueue(caller, SIGRTMIN + 1, with) == EAGAIN) sched_yield();
    }
    return 0;
}

static void queued(void) {
    struct sigaction action = {.sa_sigaction = in_order, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGRTMIN + 1, &action, 0) == 0);
    pthread_t sender;
    pthread_create(&sender, 0, send_queued, 0);
    unsigned round = 0;
    while (next < 10000) exchange(s, round++);
    pthread_join(sender, 0);
}

/* A handler for a real-time signal, which can't be deferred, is set while the caller is within the library. */
static void *send_late(void *micros) {
    usleep((long)micros);
    on(SIGRTMIN + 2, count, 0);
    for (unsigned sent = 0; sent < 50; sent++) {
        while (handled < sent) sched_yield();
        pthread_kill(caller, SIGRTMIN + 2);
    }
    return 0;
}

static void late(long micros) {
    pthread_t sender;
    pthread_create(&sender, 0, send_late, (void *)micros);
    unsigned round = 0;
    while (handled < 50) exchange(s, round++);
    pthread_join(sender, 0);
    exchange(s, 0);
    CHECK(handled == 50);
}

static sigjmp_buf back;
static void jump(int number) { siglongjmp(back, 1); }

/* Handlers that never return to a call that waits. */
static void jumps(void) {
    on(SIGALRM, jump, 0);
    volatile unsigned round = 0;
    struct itimerval soon = {{0, 0}, {0, 3000}};
    while (round < 30) {
        if (sigsetjmp(back, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, 0);
            char byte;
            CHECK(recv(s, &byte, 1, 0) < 0);
            CHECK(0);
        }
        sigset_t blocked;
        pthread_sigmask(SIG_BLOCK, 0, &blocked);
        CHECK(!sigismember(&blocked, SIGALRM) && !sigismember(&blocked, SIGUSR1));
        exchange(s, 3 * round++ + 1);
    }
}

static void once(int number) { handled++; }

/* What a program is told of its actions is what it has set. */
static void actions(void) {
    struct sigaction old, action = {.sa_handler = count, .sa_flags = SA_NODEFER};
    sigaddset(&action.sa_mask, SIGHUP);
    CHECK(sigaction(SIGTERM, 0, &old) == 0 && old.sa_handler == SIG_DFL && !(old.sa_flags & SA_SIGINFO));
    CHECK(sigaction(SIGUSR2, &action, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR2, 0, &old) == 0 && old.sa_handler == count);
    CHECK((old.sa_flags & (SA_NODEFER | SA_SIGINFO | SA_RESTART)) == SA_NODEFER);
    CHECK(sigismember(&old.sa_mask, SIGHUP) == 1 && sigismember(&old.sa_mask, SIGINT) == 0);
    CHECK(signal(SIGUSR2, SIG_IGN) == count && signal(SIGUSR2, once) == SIG_IGN);
    CHECK(signal(SIGUSR2, once) == once && signal(70, once) == SIG_ERR && errno == EINVAL);
    CHECK(sigaction(SIGUSR2, 0, &old) == 0 && old.sa_flags & SA_RESTART);
    CHECK(sigismember(&old.sa_mask, SIGUSR2) == 1);
    CHECK(siginterrupt(SIGUSR2, 1) == 0 && sigaction(SIGUSR2, 0, &old) == 0 && !(old.sa_flags & SA_RESTART));
    CHECK(sigaction(SIGKILL, &action, 0) == -1 && errno == EINVAL);
    /* A handler for one fault. */
    on(SIGSEGV, once, SA_RESETHAND);
    raise(SIGSEGV);
    CHECK(handled == 1 && sigaction(SIGSEGV, 0, &old) == 0 && old.sa_handler == SIG_DFL);
    /* A child that shares the memory changes its own actions only. */
    signal(SIGUSR2, count);
    int status, child = vfork();
    if (child == 0) {
        signal(SIGUSR2, SIG_DFL);
        sigaction(SIGUSR2, 0, &old);
        _exit(old.sa_handler == SIG_DFL ? 7 : 8);
    }
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(sigaction(SIGUSR2, 0, &old) == 0 && old.sa_handler == count);
    s = connection(), other = connection();
    exchange(s, 1), exchange(other, 1);
    handled = 0, raise(SIGUSR2);
    CHECK(handled == 1);
    child = fork();
    if (child == 0) raise(SIGTERM);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    on(SIGINT, once, SA_RESETHAND);
    raise(SIGINT);
    exchange(s, 1);
    CHECK(handled == 2 && sigaction(SIGINT, 0, &old) == 0 && old.sa_handler == SIG_DFL);
}

static void *end_soon(void *micros) {
    usleep((long)micros);
    kill(getpid(), SIGTERM);
    return 0;
}

int main(int words, char **word) {
    begin();
    int terminal = open("/dev/tty", O_RDONLY) >= 0;
    int defers = kernels(SIGTERM) != (unsigned long)SIG_DFL;
    if (strcmp(word[1], "direct") == 0) { CHECK(defers || terminal); puts("direct"); return 0; }
    if (strcmp(word[1], "counted") == 0) counted(atoi(word[2]));
    if (strcmp(word[1], "queued") == 0) queued();
    if (strcmp(word[1], "late") == 0) late(atol(word[2]));
    if (strcmp(word[1], "jumps") == 0) jumps();
    if (strcmp(word[1], "actions") == 0) actions();
    if (strcmp(word[1], "ends") == 0) {
        pthread_t thread;
        pthread_create(&thread, 0, end_soon, (void *)atol(word[2]));
        for (unsigned round = 0;; round++) exchange(s, round);
    }
    printf("%s as expected\n", word[1]);
    return 0;
}
