// SMPI replaces these names by macros, also where they are members of ours. What we simulate calls none of them.
#undef sleep
#undef usleep
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef exit
#undef getpid
#undef gettimeofday
#undef clock_gettime
