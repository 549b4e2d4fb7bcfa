#include <stdio.h>

int main(void)
{
    printf("bindery %s\n", BINDERY_VERSION);
    return 0;
}
