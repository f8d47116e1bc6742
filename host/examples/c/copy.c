/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies memory to memory through the board, once and then with several copies in progress.
 *
 *	cc -std=gnu99 -pthread -I "$(python3 -c 'import peerdma; print(peerdma.include_dir())')" \
 *		copy.c -o copy
 *	./copy [node]
 */
#include <peerdma/peerdma.h>

#include <stdlib.h>

#define BYTES	(1u << 20)
#define PIECE	(BYTES / 16)
#define DEPTH	4

/* Puts an error into words; returns the exit status. */
static int failed(struct peerdma_board *board, const char *what, int error)
{
	char text[PEERDMA_TEXT];

	fprintf(stderr, "copy: %s: %s\n", what, peerdma_error_text(board, error, text, sizeof(text)));
	return EXIT_FAILURE;
}

/* Copies all pieces, `DEPTH` of them at a time; returns a negative errno if one fails. */
static int copy_pieces(struct peerdma_board *board, const struct peerdma_pin *to,
		       const struct peerdma_pin *from)
{
	struct peerdma_job jobs[DEPTH];
	unsigned int started = 0, ended = 0;
	int error = 0;

	while (ended < started || (!error && started < BYTES / PIECE)) {
		if (!error && started < BYTES / PIECE && started - ended < DEPTH) {
			struct peerdma_transfer piece;

			memset(&piece, 0, sizeof(piece));
			piece.op = PEERDMA_OP_COPY;
			piece.to = to;
			piece.from = from;
			piece.to_offset = piece.from_offset = started * PIECE;
			piece.length = PIECE;
			error = peerdma_job_start(board, &jobs[started % DEPTH], &piece);
			started += !error;
		} else {
			/* The oldest one first; those behind it go on meanwhile, also after an error. */
			int result = peerdma_job_wait(board, &jobs[ended++ % DEPTH], -1);

			error = error ? error : result;
		}
	}
	return error;
}

int main(int count, char **arguments)
{
	unsigned char *source = malloc(BYTES), *destination = calloc(BYTES, 1);
	struct peerdma_board board;
	struct peerdma_pin from, to;
	struct peerdma_event event;
	unsigned int at;
	int error, status = EXIT_FAILURE;

	if (!source || !destination)
		return EXIT_FAILURE;
	for (at = 0; at < BYTES; at++)
		source[at] = (unsigned char)(at * 2654435761u >> 24);

	error = peerdma_board_open(&board, count > 1 ? arguments[1] : NULL);
	if (error)
		return failed(NULL, "cannot open the board", error);
	error = peerdma_pin_memory(&board, &from, source, BYTES, PEERDMA_ACCESS_READ);
	if (!error)
		error = peerdma_pin_memory(&board, &to, destination, BYTES, PEERDMA_ACCESS_WRITE);
	if (error) {
		status = failed(&board, "cannot pin memory", error);
		goto close;
	}

	error = peerdma_copy(&board, &to, 0, &from, 0, BYTES, &event);
	if (error) {
		status = failed(&board, "cannot copy", error);
		goto close;
	}
	printf("%llu bytes in %.3f ms\n", (unsigned long long)event.bytes, (double)event.time_ns / 1e6);
	if (memcmp(source, destination, BYTES)) {
		fprintf(stderr, "copy: the destination is not the source\n");
		goto close;
	}

	memset(destination, 0, BYTES);
	error = copy_pieces(&board, &to, &from);
	if (error) {
		status = failed(&board, "cannot copy pieces", error);
	} else if (memcmp(source, destination, BYTES)) {
		fprintf(stderr, "copy: the pieces are not the source\n");
	} else {
		printf("verified\n");
		status = EXIT_SUCCESS;
	}
close:
	peerdma_board_close(&board); /* unpins as well */
	free(source);
	free(destination);
	return status;
}
