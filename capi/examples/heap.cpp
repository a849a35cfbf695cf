// Containers of the C++ library in managed memory, by an allocator that stands on a heap. Argument: thread or signal.
//
//   c++ -std=c++11 -O2 heap.cpp $(pkg-config --cflags --libs userswap) -o heap && ./heap
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <userswap.h>
#include <vector>

// A heap that is closed with its last copy.
class Heap {
public:
    explicit Heap(us_engine *engine) : heap_(us_heap_new(engine), us_heap_close) {
        if (!heap_) throw std::runtime_error(us_last_error());
    }
    us_heap *get() const { return heap_.get(); }

private:
    std::shared_ptr<us_heap> heap_;
};

// What a container takes as its allocator.
template <typename T> class Managed {
public:
    using value_type = T;
    explicit Managed(const Heap &heap) : heap(heap) {}
    template <typename U> Managed(const Managed<U> &other) : heap(other.heap) {}

    T *allocate(std::size_t count) {
        if (count > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
        void *block = us_aligned_alloc(heap.get(), alignof(T), count * sizeof(T));
        if (!block) throw std::bad_alloc();
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t) { us_free(heap.get(), block); }

    template <typename U> bool operator==(const Managed<U> &other) const { return heap.get() == other.heap.get(); }
    template <typename U> bool operator!=(const Managed<U> &other) const { return !(*this == other); }

    Heap heap;
};

static void run(us_engine *engine) {
    Heap heap(engine);
    // 40 MB of numbers and 60 MB of tree in 16 MiB.
    const std::uint64_t count = 5000000, keys = 600000;
    std::vector<std::uint64_t, Managed<std::uint64_t>> numbers{Managed<std::uint64_t>(heap)};
    for (std::uint64_t i = 0; i < count; i++) numbers.push_back(i * i);

    using Text = std::basic_string<char, std::char_traits<char>, Managed<char>>;
    using Entry = std::pair<const std::uint64_t, Text>;
    std::map<std::uint64_t, Text, std::less<std::uint64_t>, Managed<Entry>> texts{Managed<Entry>(heap)};
    for (std::uint64_t key = 0; key < keys; key++)
        texts.emplace(key, Text("the text of number ", Managed<char>(heap)) + Text(std::to_string(key).c_str(), Managed<char>(heap)));

    for (std::uint64_t i = 0; i < count; i++)
        if (numbers[i] != i * i) throw std::runtime_error("a number is wrong");
    std::uint64_t expected = 0;
    for (const Entry &entry : texts) {
        if (entry.first != expected || std::stoull(std::string(entry.second.c_str() + 19)) != expected)
            throw std::runtime_error("a text is wrong");
        expected++;
    }
    if (expected != keys) throw std::runtime_error("texts are missing");
}

int main(int argc, char **argv) try {
    us_options *options = us_options_new(16 << 20);
    us_options_set(options, "fault", argc > 1 ? argv[1] : "thread");
    us_engine *engine = us_engine_new(options);
    if (!engine) throw std::runtime_error(us_last_error());
    us_options_free(options);
    run(engine);
    std::uint64_t in = 0, out = 0;
    us_counter(engine, "pswpin", &in);
    us_counter(engine, "pswpout", &out);
    us_usage usage;
    if (us_usage_read(engine, &usage, sizeof usage) != US_OK) throw std::runtime_error(us_last_error());
    us_engine_close(engine);
    std::printf("right; %llu pages swapped out, %llu in; %llu slots left in use\n", static_cast<unsigned long long>(out),
                static_cast<unsigned long long>(in), static_cast<unsigned long long>(usage.slots_used));
    return in && out && !usage.slots_used ? 0 : 1;
} catch (const std::exception &error) {
    std::fprintf(stderr, "heap: %s\n", error.what());
    return 1;
}
