/* A sequence lock: one writer replaces a few words, readers take a copy or try again (src/core/shared_record.h,
 * src/agreement/arrival_line.h). Each word is read and written by itself; all see stores and loads in the order of the program,
 * which the code asks for by release and acquire.
 *
 * What is checked: a copy that a reader accepts is what one write has written; it is not older than one the reader had before.
 *
 * -DFAULT_...: a planted fault. */
#ifndef WRITES
#define WRITES 3
#endif
#define WORDS 3
byte version, words[WORDS];

proctype writer() {
  byte n, i;
  for (n : 1 .. WRITES) {
#ifndef FAULT_NEVER_ODD
    version = 2 * n - 1;
#endif
    for (i : 0 .. WORDS - 1) { words[i] = n }
    version = 2 * n
  }
}

proctype reader() {
  byte before, i, last;
  byte copy[WORDS];
  do
  :: last < WRITES ->
     before = version;
     if
     :: before % 2 == 0 && before > 0 ->
        for (i : 0 .. WORDS - 1) { copy[i] = words[i] }
        i = 0;
        if
#ifndef FAULT_DOES_NOT_LOOK_AGAIN
        :: version == before ->
#else
        :: true ->
#endif
           assert(copy[0] == before / 2 && copy[1] == copy[0] && copy[2] == copy[0]);
           assert(copy[0] >= last);
           last = copy[0]
#ifndef FAULT_DOES_NOT_LOOK_AGAIN
        :: version != before
#endif
        fi
     :: else
     fi
  :: else -> break
  od
}

init { atomic { run writer(); run reader(); run reader() } }
