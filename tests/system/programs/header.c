/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Uses peerdma.h in ways that the examples do not: prints what is wrong, or "as it should be".
 *
 *	header threads SEED | loop | ends | frames | cost
 *
 * With "cost" it counts what copies by the header make a process do, beside copies without it.
 */
#include <peerdma/peerdma.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define PAGE	4096u
#define THREADS	8
#define COPIES	200

static int wrong;

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("line %d: %s\n", __LINE__, #condition);                             \
			wrong = 1;                                                                 \
		}                                                                                  \
	} while (0)

static struct peerdma_board board;
static struct peerdma_pin from, to;
static unsigned char *source, *destination;

static struct peerdma_transfer copy_of(uint64_t at, uint64_t length)
{
	struct peerdma_transfer transfer = { PEERDMA_OP_COPY, &to, at, &from, at, length, 0 };

	return transfer;
}

/* Copies ranges of its own at random, and waits for each in one of the ways that there are. */
static void *work(void *argument)
{
	unsigned int number = *(unsigned int *)argument, state = number * 2654435761u + 1, count;
	uint64_t base = number % THREADS * 16 * PAGE;

	for (count = 0; count < COPIES; count++) {
		struct peerdma_transfer transfer;
		struct peerdma_job job;
		uint64_t at, length;
		int result;

		state = state * 1664525 + 1013904223;
		at = base + (state >> 8) % (8 * PAGE);
		length = 1 + (state >> 4) % (8 * PAGE);
		memset(destination + at, 0, length);
		transfer = copy_of(at, length);
		result = peerdma_job_start(&board, &job, &transfer);
		EXPECT(!result);
		if (result)
			break;
		switch (count % 4) {
		case 0:
			result = peerdma_job_wait(&board, &job, -1);
			break;
		case 1:
			do
				result = peerdma_job_wait(&board, &job, 1);
			while (result == -EAGAIN);
			break;
		case 2:
			while (!peerdma_job_done(&job))
				peerdma_board_dispatch(&board);
			result = job.event.result;
			break;
		default:
			peerdma_job_cancel(&board, &job);
			result = peerdma_job_wait(&board, &job, -1);
			if (result == -ECANCELED)
				continue;
		}
		EXPECT(!result);
		EXPECT(job.event.bytes == length);
		EXPECT(!memcmp(source + at, destination + at, length));
	}
	return NULL;
}

static void threads(unsigned int seed)
{
	unsigned int numbers[THREADS], place;
	pthread_t started[THREADS];

	for (place = 0; place < THREADS; place++) {
		numbers[place] = seed * THREADS + place;
		EXPECT(!pthread_create(&started[place], NULL, work, &numbers[place]));
	}
	for (place = 0; place < THREADS; place++)
		pthread_join(started[place], NULL);
}

/* A loop around poll() that has several jobs in progress, and learns of them by dispatch alone. */
static void loop(void)
{
	struct peerdma_job jobs[8];
	unsigned int started = 0, ended = 0;

	while (ended < 64) {
		struct pollfd node = { board.fd, POLLIN, 0 };

		while (started < 64 && started - ended < 8) {
			struct peerdma_transfer transfer = copy_of(started * PAGE, PAGE);

			EXPECT(!peerdma_job_start(&board, &jobs[started++ % 8], &transfer));
		}
		EXPECT(poll(&node, 1, 20000) == 1);
		EXPECT(!peerdma_board_dispatch(&board));
		while (ended < started && peerdma_job_done(&jobs[ended % 8]))
			EXPECT(!jobs[ended++ % 8].event.result);
		if (wrong)
			break;
	}
	EXPECT(peerdma_board_dispatch(&board) == -EAGAIN);
	EXPECT(!memcmp(source, destination, 64 * PAGE));
}

/* Jobs and requests that fail, and those that are given up. */
static void ends(void)
{
	struct peerdma_transfer transfer = copy_of(0, PAGE), endless;
	struct peerdma_pin none;
	struct peerdma_job job;
	char text[PEERDMA_TEXT];
	uint64_t begin;
	int error;

	transfer.length = THREADS * 16 * PAGE + 1;
	error = peerdma_run(&board, &transfer, NULL);
	EXPECT(error == -EINVAL);
	EXPECT(strstr(peerdma_error_text(&board, error, text, sizeof(text)), "beyond the memory"));
	EXPECT(peerdma_pin_memory(&board, &none, NULL, PAGE, PEERDMA_ACCESS_READ) == -EFAULT);
	EXPECT(!none.handle && !peerdma_unpin(&board, &none));
	EXPECT(peerdma_pin_dma_buf(&board, &none, -1, 0, 0, PEERDMA_ACCESS_READ, 0) == -EBADF);
	EXPECT(peerdma_error_text(NULL, -ENOENT, text, sizeof(text)) == text && strstr(text, "driver"));
	EXPECT(strlen(peerdma_error_text(NULL, -EINVAL, text, 8)) < 8);

	/* The user stream has nothing for it. */
	memset(&endless, 0, sizeof(endless));
	endless.op = PEERDMA_OP_C2H;
	endless.to = &to;
	endless.from_offset = board.info.stream_window;
	endless.length = PAGE;
	EXPECT(board.info.stream_window != 0);
	EXPECT(!peerdma_job_start(&board, &job, &endless));
	begin = peerdma_clock_();
	EXPECT(peerdma_job_wait(&board, &job, 50) == -EAGAIN);
	EXPECT(peerdma_clock_() - begin >= 50 * 1000000u);
	EXPECT(!peerdma_job_done(&job));
	EXPECT(!peerdma_job_cancel(&board, &job));
	EXPECT(peerdma_job_wait(&board, &job, -1) == -ECANCELED);
	EXPECT(strstr(peerdma_event_text(&job.event, text, sizeof(text)), "cancelled"));
	EXPECT(!peerdma_job_cancel(&board, &job));

	/* Closing does not wait for it for ever, and the next one finds the board free. */
	EXPECT(!peerdma_job_start(&board, &job, &endless));
	peerdma_board_close(&board);
	peerdma_board_close(&board);
	EXPECT(!peerdma_board_open(&board, NULL));
	EXPECT(!board.info.pinned_bytes);
	EXPECT(!peerdma_pin_memory(&board, &from, source, PAGE, PEERDMA_ACCESS_READ));
	EXPECT(!peerdma_write(&board, 0, &from, 0, PAGE, NULL));
}

/* Of a source that goes on for ever: what is in frames is acquire.c's matter. */
static void frames(void)
{
	struct peerdma_frame places[4];
	struct peerdma_board sensor;
	struct peerdma_frames frames;
	uint64_t filled = 0, seen = 0;
	struct peerdma_pin pin;
	unsigned int place;
	int error;

	EXPECT(!peerdma_board_open(&sensor, "/dev/picoevb1"));
	if (wrong)
		return;
	EXPECT(!peerdma_pin_memory(&sensor, &pin, destination, 4 * PAGE, PEERDMA_ACCESS_WRITE));
	for (place = 0; place < 4; place++) {
		memset(&places[place], 0, sizeof(places[place]));
		places[place].handle = pin.handle;
		places[place].offset = place * PAGE;
		places[place].length = PAGE;
	}
	EXPECT(!peerdma_frames_start(&sensor, &frames, places, 4, NULL));
	while (seen < 40 && !wrong) {
		EXPECT(!peerdma_frames_wait(&sensor, &frames, seen, 20000, &filled));
		EXPECT(filled > seen && filled <= seen + 4);
		EXPECT(peerdma_frames_release(&sensor, &frames, 5) == -EINVAL);
		EXPECT(!peerdma_frames_release(&sensor, &frames, 1));
		seen++;
	}
	EXPECT(!peerdma_frames_wait(&sensor, &frames, seen + 3, 20000, &filled));
	EXPECT(peerdma_frames_wait(&sensor, &frames, seen + 4, 20, &filled) == -EAGAIN);
	/* What was filled before the end can still be had, and then the end. */
	EXPECT(!peerdma_frames_stop(&sensor, &frames));
	EXPECT(!peerdma_frames_wait(&sensor, &frames, seen, 0, &filled) && filled == seen + 4);
	EXPECT(!peerdma_frames_release(&sensor, &frames, 4) && frames.released == filled);
	error = peerdma_frames_wait(&sensor, &frames, filled, -1, &filled);
	EXPECT(error == -ECANCELED);
	EXPECT(!peerdma_frames_stop(&sensor, &frames));
	peerdma_board_close(&sensor);
}

#define COUNTED	10

static double processor_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void copies_by_header(void)
{
	int count;

	for (count = 0; count < COUNTED; count++)
		EXPECT(!peerdma_copy(&board, &to, 0, &from, 0, 64, NULL));
}

static void copies_without(void)
{
	int count;

	for (count = 0; count < COUNTED; count++) {
		struct pollfd poller = { .fd = board.fd, .events = POLLIN };
		struct peerdma_event event;
		struct peerdma_submit request;

		memset(&request, 0, sizeof(request));
		request.size = sizeof(request);
		request.op = PEERDMA_OP_COPY;
		request.src_handle = from.handle;
		request.dst_handle = to.handle;
		request.length = 64;
		EXPECT(!ioctl(board.fd, PEERDMA_IOC_SUBMIT, &request));
		EXPECT(poll(&poller, 1, 20000) == 1);
		EXPECT(read(board.fd, &event, sizeof(event)) == sizeof(event));
	}
}

/* The same copies in both ways, each between two signals; the time is printed, and not judged. */
static void cost(void)
{
	double begin, middle;

	/* What the first call of a function costs, its dynamic link for example, does not count. */
	copies_by_header();
	copies_without();
	begin = processor_time();
	raise(SIGUSR1);
	copies_by_header();
	raise(SIGUSR1);
	middle = processor_time();
	raise(SIGUSR1);
	copies_without();
	raise(SIGUSR1);
	printf("processor time: %.1f us a copy, %.1f us without the header\n",
	       (middle - begin) / COUNTED * 1e6, (processor_time() - middle) / COUNTED * 1e6);
	fflush(stdout);
}

/*
 * Forks; the child gets 0, and makes the copies. Here its stops between signals are counted, each
 * after a step or at a system call's ends: how many more a copy has by the header than without it.
 */
static pid_t count_stops(enum __ptrace_request request, double *more)
{
	long stops[6] = { 0 };
	int status = 0, part = 0;
	pid_t child = fork();

	if (!child) {
		/* Nobody would wake a child that is not traced. */
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			EXPECT(!"a child can be traced");
		else
			raise(SIGSTOP);
		return child;
	}
	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == SIGTRAP)
			stops[part]++;
		else if (WSTOPSIG(status) == SIGUSR1 && part < 5)
			part++;
		if (ptrace(part & 1 ? request : PTRACE_CONT, child, NULL, NULL))
			break;
	}
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status) && part == 4);
	*more = (double)(stops[1] - stops[3]) / COUNTED;
	return child;
}

/*
 * The processor time of the header is that of its system calls, which must be the same as without
 * it, and of its own instructions. Times would say the same, but not twice.
 */
static void counted(void)
{
	double calls, instructions;

	signal(SIGUSR1, SIG_IGN); /* a tracer is told of it all the same */
	if (!count_stops(PTRACE_SYSCALL, &calls) || !count_stops(PTRACE_SINGLESTEP, &instructions))
		return;
	printf("more by the header, a copy: %.1f system calls, %.1f instructions\n", calls / 2,
	       instructions);
	EXPECT(!calls);
	EXPECT(instructions > 0 && instructions < 1000);
}

int main(int count, char **arguments)
{
	size_t bytes = THREADS * 16 * PAGE, at;
	const char *what = count > 1 ? arguments[1] : "";

	if (!strcmp(what, "cost"))
		counted();
	source = malloc(bytes);
	destination = calloc(bytes, 1);
	if (!source || !destination)
		return 1;
	for (at = 0; at < bytes; at++)
		source[at] = (unsigned char)(at * 2654435761u >> 20 | 1);
	EXPECT(!peerdma_board_open(&board, NULL));
	if (wrong)
		return 1;
	EXPECT(!peerdma_pin_memory(&board, &from, source, bytes, PEERDMA_ACCESS_READ));
	EXPECT(!peerdma_pin_memory(&board, &to, destination, bytes, PEERDMA_ACCESS_WRITE));
	if (!strcmp(what, "threads"))
		threads(count > 2 ? (unsigned int)strtoul(arguments[2], NULL, 0) : 0);
	else if (!strcmp(what, "loop"))
		loop();
	else if (!strcmp(what, "ends"))
		ends();
	else if (!strcmp(what, "frames"))
		frames();
	else if (!strcmp(what, "cost"))
		cost();
	else
		EXPECT(!"the program knows this argument");
	peerdma_board_close(&board);
	if (!wrong)
		printf("as it should be\n");
	return wrong;
}
