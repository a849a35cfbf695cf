// row C++ with jemalloc: {build}/jemalloc
// needs: g++ file:/usr/include/jemalloc/jemalloc.h
// build: g++ -O1 -o jemalloc {file} -ljemalloc -pthread
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

static unsigned long share(int number) {
    std::map<int, std::string> names;
    std::vector<std::vector<unsigned char>> blocks;
    for (int i = 0; i < 120000; i++) {
        names[i * 7919 % 120000] = "thread " + std::to_string(number) + " a text too long for the string itself";
        if (i % 6000 == 0) blocks.emplace_back(1 << 20, (unsigned char)(i / 6000));
    }
    unsigned long sum = 0;
    for (auto &name : names) sum += name.first * name.second.size();
    for (auto &block : blocks) for (auto part : block) sum += part;
    return sum;
}

int main() {
    unsigned long sums[4];
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; n++) threads.emplace_back([n, &sums] { sums[n] = share(n); });
    for (auto &thread : threads) thread.join();
    std::printf("%lu %lu %lu %lu\n", sums[0], sums[1], sums[2], sums[3]);
}
