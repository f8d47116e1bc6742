/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * acquire FILE [FRAMES [NODE]]: writes frames of the user stream of a board into a file. FRAMES is
 * 1000 if it is not given, NODE is the first board's. Ctrl-C ends it.
 *
 * Exit status: 0: all frames were written; 1: it could not start; 2: wrong arguments; 3: no frame
 * came for 10 s; 4: the board failed; 5: the file could not be written; 128 + n: signal n came.
 *
 * Compile with: gcc -std=gnu99 -Wall -Wextra -pthread -I INCLUDE -o acquire acquire.c
 * where INCLUDE is the folder with peerdma/peerdma.h in it.
 */
#include <err.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

#include <peerdma/peerdma.h>

#define PLACES		8
#define FRAME_BYTES	65536
#define RING_BYTES	(PLACES * FRAME_BYTES)
#define SLICE_MS	250	/* waits are not ended by signals, so they are short */
#define SILENCE_MS	10000

enum { ALL_WRITTEN, NOT_STARTED, USAGE, NO_FRAME, BOARD_FAILED, FILE_FAILED };

static volatile sig_atomic_t stopped; /* by this signal */

static void stop(int number)
{
	stopped = number;
}

/* Writes a frame as a whole: 0, or the errno that kept the rest of it from being written. */
static int write_frame(int file, const char *frame, size_t *wrote)
{
	for (*wrote = 0; *wrote < FRAME_BYTES;) {
		ssize_t now = write(file, frame + *wrote, FRAME_BYTES - *wrote);

		if (now > 0)
			*wrote += (size_t)now;
		else if (!now)
			return EIO;
		else if (errno != EINTR || stopped)
			return errno;
	}
	return 0;
}

static int board_failed(struct peerdma_board *board, const struct peerdma_frames *frames, int error)
{
	char text[PEERDMA_TEXT];

	/* A ring that has ended says why; the board may also be gone without that. */
	if (peerdma_job_done(&frames->job))
		peerdma_event_text(&frames->job.event, text, sizeof(text));
	else
		peerdma_error_text(board, error, text, sizeof(text));
	warnx("the board failed: %s", text);
	return BOARD_FAILED;
}

/* Writes frames until there are enough or something ends that: the exit status. */
static int receive(struct peerdma_board *board, struct peerdma_frames *frames, const char *ring,
		   int file, const char *name, uint64_t wanted, uint64_t *written)
{
	int error, silence = 0;
	uint64_t filled;
	size_t wrote;

	while (*written < wanted && !stopped) {
		error = peerdma_frames_wait(board, frames, *written, SLICE_MS, &filled);
		if (error == -EAGAIN) {
			silence += SLICE_MS;
			if (silence < SILENCE_MS)
				continue;
			warnx("no frame came for %d s", SILENCE_MS / 1000);
			return NO_FRAME;
		}
		if (error)
			return board_failed(board, frames, error);
		silence = 0;
		while (*written < filled && *written < wanted && !stopped) {
			error = write_frame(file, ring + *written % PLACES * FRAME_BYTES, &wrote);
			if (error) {
				warnx("%s: %zu of %d bytes of frame %" PRIu64 " were written: %s",
				      name, wrote, FRAME_BYTES, *written, strerror(error));
				return FILE_FAILED;
			}
			++*written;
			error = peerdma_frames_release(board, frames, 1);
			if (error)
				return board_failed(board, frames, error);
		}
	}
	if (*written == wanted)
		return ALL_WRITTEN;
	warnx("stopped by signal %d", (int)stopped);
	return 128 + stopped;
}

int main(int argc, char **argv)
{
	struct peerdma_frame places[PLACES] = { { 0, 0, 0, 0 } };
	struct peerdma_frames frames;
	struct peerdma_board board;
	/* The second signal kills, should a write hang. */
	struct sigaction action = { .sa_handler = stop, .sa_flags = SA_RESETHAND };
	struct peerdma_pin pin;
	char text[PEERDMA_TEXT], *end = NULL;
	int error, number, file = -1, status = NOT_STARTED;
	uint64_t wanted = 1000, written = 0;
	void *ring = NULL;

	errno = 0;
	if (argc > 2)
		wanted = strtoull(argv[2], &end, 10);
	if (argc < 2 || argc > 4 || errno || !wanted || (end && (*end || *argv[2] < '0')))
		errx(USAGE, "usage: acquire FILE [FRAMES [NODE]]");

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN); /* write() reports these two */
	signal(SIGXFSZ, SIG_IGN);

	error = peerdma_board_open(&board, argc > 3 ? argv[3] : NULL);
	if (error)
		errx(NOT_STARTED, "%s", peerdma_error_text(NULL, error, text, sizeof(text)));
	error = -posix_memalign(&ring, FRAME_BYTES, RING_BYTES);
	if (!error)
		error = peerdma_pin_memory(&board, &pin, ring, RING_BYTES, PEERDMA_ACCESS_WRITE);
	for (number = 0; !error && number < PLACES; number++) {
		places[number].handle = pin.handle;
		places[number].offset = (uint64_t)number * FRAME_BYTES;
		places[number].length = FRAME_BYTES;
	}
	if (!error && (file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0) {
		warn("%s", argv[1]);
	} else if (error || (error = peerdma_frames_start(&board, &frames, places, PLACES, NULL))) {
		warnx("%s", peerdma_error_text(&board, error, text, sizeof(text)));
	} else {
		status = receive(&board, &frames, ring, file, argv[1], wanted, &written);
		error = peerdma_frames_stop(&board, &frames);
		if (error && status != BOARD_FAILED)
			status = board_failed(&board, &frames, error);
	}
	peerdma_board_close(&board); /* unpins, and ends a ring that could not be stopped */
	free(ring);
	if (file >= 0 && close(file)) {
		warn("%s: not all of it was written", argv[1]);
		status = FILE_FAILED;
	}
	warnx("%" PRIu64 " of %" PRIu64 " frames were written", written, wanted);
	return status;
}
