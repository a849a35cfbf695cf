# row QEMU, a machine of its own: bash {file} {build}
# needs: qemu-system-x86_64 gcc
# build: bash {file} build $PWD
# A machine with 192 MiB, whose only program fills 128 MiB of them and goes through them twice in large steps.
if [ "$1" = build ]; then
    cat >"$2/guest.c" <<'CODE'
__attribute__((section(".multiboot"), used)) static const unsigned header[] = {0x1badb002, 0, -0x1badb002u};
static unsigned char stack[4096];
static void put(char letter) { __asm__ volatile("outb %0, %1" : : "a"(letter), "Nd"((unsigned short)0x3f8)); }
static void show(unsigned number) {
    for (int shift = 28; shift >= 0; shift -= 4)
        put("0123456789abcdef"[number >> shift & 15]);
    put('\n');
}
__attribute__((used)) static void work(void) {
    enum { WORDS = 32 << 20, STEP = 4099 };
    unsigned *memory = (unsigned *)(32u << 20), value = 1, sum = 0;
    for (unsigned index = 0; index < WORDS; index++)
        memory[index] = value = value * 1664525u + 1013904223u;
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned start = 0; start < STEP; start += 1024)
            for (unsigned index = start; index < WORDS; index += STEP)
                sum = sum * 31 + memory[index]++;
        show(sum);
    }
    __asm__ volatile("outb %b0, %1" : : "a"(1), "Nd"((unsigned short)0xf4));
    for (;;)
        __asm__ volatile("hlt");
}
__attribute__((naked, used)) void _start(void) {
    __asm__ volatile("mov %0, %%esp\n jmp *%1" : : "i"(stack + sizeof stack), "r"(work));
}
CODE
    # Its header has to come first in the file.
    exec gcc -m32 -O2 -ffreestanding -fno-pie -no-pie -nostdlib -fno-stack-protector -Wl,--build-id=none -Wl,-n -Wl,--no-warn-rwx-segments \
        -Wl,-Ttext=0x100000 -Wl,--section-start=.multiboot=0xff000 -o "$2/guest" "$2/guest.c"
fi
qemu-system-x86_64 -accel tcg -m 192 -nodefaults -display none -serial stdio -no-reboot \
    -device isa-debug-exit,iobase=0xf4 -kernel "$1/guest" </dev/null
echo "ended $?"
