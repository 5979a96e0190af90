/* How worker 0's thread sleeps (src/control/worker/worker0.cpp), and how the controller wakes it for a command. Stores may come late, in
 * order: the controller has a buffer of them, as on x86. A read-modify-write waits until it is empty.
 *
 * What is checked:
 *   nobody waits for ever (spin: no invalid end state): a sleep that is not a first, short one ends by a wake-up only
 *
 * -DFAULT_NO_SHORT_SLEEP: the look after the first sleep is missing. */
#ifndef COMMANDS
#define COMMANDS 4
#endif

byte head;  /* commands that have reached memory */
chan stores = [4] of { byte };
bit done;
active proctype store_buffer() {
  do
  :: atomic { stores?head }
  :: done && empty(stores) -> break
  od
}

bit sleeps;  /* Worker0::state_ */
byte rings;  /* its bell */

active proctype controller() {
  byte issued;
  bit has_slept;
  do
  :: issued < COMMANDS ->
     issued++;
     stores!issued;
     if  /* issued(): a load without a fence */
     :: sleeps ->
        atomic { empty(stores); has_slept = sleeps; sleeps = 0 }  /* wake(): an exchange */
        if
        :: has_slept -> rings = (rings + 1) % 16
        :: else
        fi;
        has_slept = 0
     :: else
     fi
  :: else -> break
  od;
  done = 1
}

active proctype worker0() {
  byte taken, seen;
  do
  :: taken == COMMANDS -> break
  :: taken < head -> taken++
  :: taken < COMMANDS && taken == head ->  /* rest() */
     seen = rings;
     sleeps = 1;
     if
     :: taken != head
     :: taken == head ->
#ifndef FAULT_NO_SHORT_SLEEP
        if
        :: rings != seen
        :: timeout  /* all stores made before it have arrived */
        fi;
        if
        :: taken != head
        :: taken == head ->
#endif
           rings != seen
#ifndef FAULT_NO_SHORT_SLEEP
        fi
#endif
     fi;
     sleeps = 0;
     seen = 0
  od
}
