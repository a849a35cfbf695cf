// Becomes another program, whose path is the argument and whose environment is empty, by the function that takes a list.
#include "must.h"
#include <unistd.h>

int main(int count, char **arguments) {
    char *nothing[] = {0};
    MUST(count == 2);
    execle(arguments[1], arguments[1], (char *)0, nothing);
    MUST(0);
}
