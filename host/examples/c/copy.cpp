// SPDX-License-Identifier: BSD-2-Clause
// Copies an array through the board and card RAM, by peerdma.hpp.
//
//     c++ -std=c++11 -pthread -I "$(python3 -c 'import peerdma; print(peerdma.include_dir())')"
//         copy.cpp -o copy
//     ./copy [node]
#include <peerdma/peerdma.hpp>

#include <cstdlib>
#include <iostream>
#include <numeric>

int main(int count, char **arguments) {
    try {
        std::vector<std::uint32_t> source(4096), destination(source.size()), card(source.size());
        std::size_t bytes = source.size() * sizeof(source[0]);
        std::iota(source.begin(), source.end(), 1u);

        peerdma::board board(count > 1 ? arguments[1] : nullptr);
        peerdma::pin from(board, source.data(), bytes, peerdma::read);
        peerdma::pin to(board, destination.data(), bytes, peerdma::write);
        peerdma::pin back(board, card.data(), bytes, peerdma::write);

        board.copy(to, 0, from, 0, bytes);
        // One that goes out of scope is cancelled and waited for: the board has no use of its memory.
        peerdma::job job(board, {PEERDMA_OP_H2C, nullptr, 0, from.get(), 0, bytes, 0});
        job.wait();
        board.read(back, 0, 0, bytes);

        if (destination != source || card != source) {
            std::cerr << "copy: the bytes are others\n";
            return EXIT_FAILURE;
        }
        std::cout << "verified\n";
        return EXIT_SUCCESS;
    } catch (const peerdma::error &error) {
        std::cerr << "copy: " << error.what() << "\n";
        return EXIT_FAILURE;
    }
}
