/* A byte stream in shared memory with one writer and READERS readers (src/control/segment/ring.h), and the doorbells on which its ends
 * sleep (src/core/doorbell.h). Stores may come late, in order: each process has a buffer of them, as on x86. A read-modify-write
 * and a store of seq_cst wait until it is empty.
 *
 * What is checked:
 *   nothing is read that was not written, and nothing is written over that somebody has not read
 *   nobody waits for ever (spin: no invalid end state)
 *
 * -DORDERED: the doorbells are rung by ring_ordered(), which has no fence. -DFAULT_...: a planted fault. */
#ifndef READERS
#define READERS 1
#endif
#define SIZE 2   /* bytes of the ring */
#ifndef BYTES
#define BYTES 4  /* of the stream */
#endif
#define WRITER READERS

/* addresses: the ring's bytes, the head, each reader's tail */
#define HEAD SIZE
#define TAIL(r) (SIZE + 1 + (r))
#define WORDS (SIZE + 1 + READERS)
byte memory[WORDS];

chan stores[READERS + 1] = [2] of { byte, byte };  /* that have not reached memory: address, value */
#define fence() empty(stores[me])
#define store(address, value) stores[me]!address,value
bit done[READERS + 1];
proctype store_buffer(byte me) {
  byte address, value;
  do
  :: atomic { stores[me]?address,value -> memory[address] = value; address = 0; value = 0 }
  :: done[me] && empty(stores[me]) -> break
  od
}

typedef Doorbell { byte rings, sleepers };
Doorbell bells[2];
#define COMMANDS bells[0]  /* the readers sleep on it */
#define SPACE bells[1]     /* the writer does */

inline ring(bell) {
#ifndef ORDERED
  atomic { fence(); has_sleepers = bell.sleepers != 0 }
#else
  has_sleepers = bell.sleepers != 0;
#endif
  if
  :: has_sleepers -> atomic { fence(); bell.rings = (bell.rings + 1) % 16 }
  :: else
  fi;
  has_sleepers = 0
}

/* wait_until without its time of spinning: `look` sets is_ready */
#define wait_until(bell, look) \
  atomic { fence(); bell.sleepers++ } \
  is_first = 1; \
  do \
  :: seen = bell.rings; look; \
     if \
     :: is_ready -> break \
     :: else \
     fi; \
     if \
     :: bell.rings != seen -> is_first = STAYS_FIRST \
     :: FIRST_SLEEP_ENDS -> is_first = 0 /* all stores made before it have arrived */ \
     fi \
  od; \
  atomic { fence(); bell.sleepers--; is_first = 0; seen = 0; is_ready = 0 }
#ifdef FAULT_SLEEPS_LONG
#define FIRST_SLEEP_ENDS false
#else
#define FIRST_SLEEP_ENDS is_first && timeout
#endif
#ifdef FAULT_WAKES_ONCE  /* who was woken takes the next sleep for as safe as after a whole short one */
#define STAYS_FIRST 0
#else
#define STAYS_FIRST is_first
#endif

inline look_for_space() {  /* RingWriter::consumed */
  least = at;
  for (r : 0 .. READERS - 1) {
    atomic {
      if
      :: memory[TAIL(r)] < least -> least = memory[TAIL(r)]
      :: else
      fi
    }
  }
  atomic {
    r = 0;
#ifdef FAULT_ONE_TAIL
    least = memory[TAIL(0)];
#endif
    slowest = least; least = 0; is_ready = at - slowest < SIZE
  }
}

proctype writer() {
  byte me = WRITER, at, slowest, least, r, seen;
  bit has_sleepers, is_first, is_ready;
  do
  :: at < BYTES ->
     if
     :: at - slowest == SIZE ->
        wait_until(SPACE, look_for_space())
     :: else
     fi;
     store(at % SIZE, at + 1);
#ifdef FAULT_HEAD_FIRST
     atomic { memory[HEAD] = at + 1 }
#else
     store(HEAD, at + 1);
#endif
     at++;
     ring(COMMANDS)
  :: else -> break
  od;
  done[me] = 1
}
proctype reader(byte me) {
  byte at, head, seen, told;
  bit has_sleepers, is_first, is_ready;
  do
  :: at < BYTES ->
     if
     :: head == at -> wait_until(COMMANDS, atomic { head = memory[HEAD]; is_ready = head != at })
     :: else
     fi;
     assert(memory[at % SIZE] == at + 1);
     at++;
     if
     :: told != at -> told = at; store(TAIL(me), at); ring(SPACE)
     :: at - told < SIZE && head != at  /* it tells now and then: before it waits */
     fi
  :: else -> break
  od;
  done[me] = 1
}

init {
  byte i;
  atomic {
    for (i : 0 .. READERS - 1) { run reader(i); run store_buffer(i) }
    run writer();
    run store_buffer(WRITER)
  }
}
