/* The agreement of the members of a collective on one node (src/agreement/own_arrivals.cpp, node_protocol.cpp): each
 * writes its arrivals in turns into two lines, and what a line can't say into its record; reads those of the others; and comes
 * to a verdict by itself. A line and a record are read and written in one step here: that their readers see no halves is
 * seqlock.pml's part. Memory is sequentially consistent here; docs/design.md says which orders the code asks for instead.
 *
 * What is checked:
 *   one verdict  no two members come to different verdicts on a collective
 *   no waiting   no worker waits for ever (spin: no invalid end state), whatever the order of their collectives
 *   no torn data what a member reads beside an arrival (operands, eager data) was written with this arrival
 *
 * -DWORKERS, -DIDS: how many. -DORDER: which communicators the collectives are on. -DFAULT_...: a planted fault, which the
 * checks must find. */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef IDS
#define IDS 2
#endif
#define ALL ((1 << WORKERS) - 1)
#define BIT(i) (1 << (i))

/* MEMBERS(id): a set of workers. EARLIER(id): the collectives of the same communicator that come before it */
#if ORDER == 0    /* one communicator */
#define MEMBERS(id) ALL
#define EARLIER(id) (BIT(id) - 2)
#elif ORDER == 1  /* as many communicators of all members: workers may call them in any order */
#define MEMBERS(id) ALL
#define EARLIER(id) 0
#elif ORDER == 2  /* three workers, a communicator for each pair of them: (0,1), (1,2), (0,2) */
#define MEMBERS(id) ((id) == 1 -> 3 : ((id) == 2 -> 6 : 5))
#define EARLIER(id) 0
#elif ORDER == 4  /* one of all, one of two of the three: a deadlock of these, while the third only polls their lines */
#define MEMBERS(id) ((id) == 1 -> 7 : 6)
#define EARLIER(id) 0
#else             /* one of all, then some of worker 1 alone, as if with others: it goes ahead */
#define MEMBERS(id) ((id) == 1 -> ALL : 2)
#define EARLIER(id) (BIT(id) - 2)
#endif

#ifndef LOOKS  /* for deadlocks; without them there are fewer states */
#define LOOKS true
#endif
#ifndef WAYS   /* to move data: 1: direct, 2: eager, too, 3: direct parts of all, too */
#define WAYS 3
#endif
#define AGREED 1
#define FAILED 2
#define NOBODY 255

/* shared memory: two lines of each worker, its record, its counts */
#define L(w, l) ((w) * 2 + (l))
typedef Line { byte number, id, taken; bit sig, in_record };
Line line[WORKERS * 2];
typedef Record { byte id, taken, left; bit sig, has_members };
Record record[WORKERS];
byte data[WORKERS * 2];  /* operands, eager data: the number of the arrival that they were written with */
byte taken[WORKERS];
bit has_finished[WORKERS];
byte waits_in[WORKERS];  /* flight recorder: a collective without a verdict */
byte moves_in[WORKERS];  /* and one with */
byte has_moved[WORKERS]; /* in collectives that move parts of all: set of ids */
bit leaver;
#define STANDS_IN(l, what) (line[l].number != 0 && line[l].id == (what))

/* not shared: what is checked, and what lets a waiting worker look again only if there is something new */
byte verdict[IDS + 1];
bit is_new[WORKERS];
bit looks_due[WORKERS];
byte part_of_all;  /* set of the ids in which every member gets something of every other */
byte eager;        /* set of the ids whose data travels with the arrivals */

inline tell_all() {
  for (k : 0 .. WORKERS - 1) { is_new[k] = 1; looks_due[k] = 1 }
  k = 0
}

inline look_again() {  /* after its time: every worker that waits does so now and then */
  for (k : 0 .. WORKERS - 1) { looks_due[k] = 1 }
  k = 0
}

inline come_to(what) {
  assert(verdict[id] == 0 || verdict[id] == what);
  verdict[id] = what
}

/* ---- writing an arrival ---- */

/* whoever agreed with us on what stands in that line may still have to read it */
inline await_takers(l) {
#ifndef FAULT_DOES_NOT_WAIT_FOR_TAKERS
  for (o : 0 .. WORKERS - 1) {
    if
    :: takers[L(o, l)] > seen_taken[o] -> taken[o] >= takers[L(o, l)]
    :: else
    fi
  }
  o = 0;
#endif
  atomic { for (k : 0 .. WORKERS - 1) { takers[L(k, l)] = 0 } k = 0 }
}

inline write_record(members) {
  d_step {
    record[me].id = id; record[me].sig = sig; record[me].taken = taken[me];
    record[me].left = left; record[me].has_members = members;
    look_again()
  }
}

inline write(with_record, members) {
  d_step { number++; at = number % 2 }
  await_takers(at);
  data[L(me, at)] = 0;
  data[L(me, at)] = number;
  if
  :: with_record -> await_takers(1 - at); write_record(members)
  :: else
  fi;
  d_step {
    line[L(me, at)].number = number; line[L(me, at)].id = id; line[L(me, at)].sig = sig;
    line[L(me, at)].taken = taken[me]; line[L(me, at)].in_record = with_record;
    tell_all()
  }
}

/* ---- reading arrivals: worker o's, as one who waits in `id` sees it ---- */

inline read_latest(w) {  /* newest := its latest line, other := the one before it */
  d_step {
    newest = (line[L(w, 1)].number > line[L(w, 0)].number -> 1 : 0)
  }
}

/* BoardView::arrival: sets a_id, a_left, a_members, a_sig, a_taken. One step: what has changed since is seen by who asked for a
 * view of one moment */
inline view_arrival(w, wanted) {
  d_step {
    newest = (line[L(w, 1)].number > line[L(w, 0)].number -> 1 : 0);
    a_id = 0; a_left = 0; a_members = 0; a_sig = 0; a_taken = 0;
    by_record = 0;
    if
    :: line[L(w, newest)].number == 0 -> newest = 0
    :: else ->
       pick = newest;
       if  /* the one before it, if that is the one asked for */
       :: wanted != 0 && STANDS_IN(L(w, 1 - newest), wanted) && line[L(w, newest)].id != wanted ->
          if
          :: record[w].left & BIT(wanted) -> by_record = 1
          :: else ->
             if
             :: !line[L(w, 1 - newest)].in_record || record[w].id == wanted -> pick = 1 - newest
             :: else
             fi
          fi
       :: else
       fi;
       if
       :: by_record || line[L(w, pick)].in_record || record[w].id == line[L(w, pick)].id -> by_record = 1;
          a_id = record[w].id; a_left = record[w].left; a_sig = record[w].sig; a_taken = record[w].taken;
          a_members = (record[w].has_members -> MEMBERS(a_id) : 0)
       :: else ->
          a_id = line[L(w, pick)].id; a_sig = line[L(w, pick)].sig; a_taken = line[L(w, pick)].taken; a_members = BIT(w)
       fi
    fi;
    pick = 0; newest = 0; by_record = 0
  }
}
/* a line that says "in the record" and a record of something else: its writer is at it, read again */
#define is_being_written(w) \
  ((line[L(w, 1)].number > line[L(w, 0)].number && line[L(w, 1)].in_record && record[w].id != line[L(w, 1)].id) || \
   (line[L(w, 1)].number < line[L(w, 0)].number && line[L(w, 0)].in_record && record[w].id != line[L(w, 0)].id))

/* the rule (decide): reads the members one after the other; valid if nothing has changed from its begin to its end */
inline decide() {
  d_step { missing = 0; gone = 0; joined_other = 0 }
  for (o : 0 .. WORKERS - 1) {
    if
    :: o != me && (MEMBERS(id) & BIT(o)) ->
       was_finished = has_finished[o];
       atomic { !is_being_written(o); view_arrival(o, id) }
       d_step {
         if
         :: a_id != 0 && (a_left & BIT(id)) -> gone = 1
         :: else
         fi;
         if
         :: a_id == id && a_members != 0 && a_sig != sig -> joined_other = 1
         :: else
         fi;
         if
         :: a_id == id && !(a_left & BIT(id))
         :: else ->
            missing = 1;
            if
            :: was_finished -> gone = 1
            :: else
            fi
         fi;
         a_id = 0; a_left = 0; a_members = 0; a_sig = 0; a_taken = 0; was_finished = 0
       }
    :: else
    fi
  }
  atomic {
    o = 0;
    found = 0;
    if
    :: joined_other -> found = ((missing && !gone && may_come) -> 0 : FAILED)
    :: else -> found = (gone -> FAILED : (missing -> 0 : AGREED))
    fi;
    missing = 0; gone = 0; joined_other = 0
  }
}

/* found := the verdict of one moment, or 0 */
inline settle() {
  do
  :: is_new[me] = 0; decide();
     if
     :: is_new[me]  /* something came meanwhile */
     :: else -> break
     fi
  od
}

/* ---- deadlocks ---- */

/* circle := the workers of a deadlock that has me in it, and what each waits for; 0: none. Reads one worker after the other */
inline look_for_deadlock() {
  for (o : 0 .. WORKERS - 1) {
    atomic {
      s_waits[o] = waits_in[o]; s_in[o] = (waits_in[o] != 0 -> waits_in[o] : moves_in[o]);
      s_members[o] = 0; s_left[o] = 0; s_joined[o] = 0
    }
    if
    :: s_in[o] != 0 ->
       atomic { !is_being_written(o); view_arrival(o, 0);
         if
         :: a_id == s_in[o] -> s_members[o] = a_members; s_left[o] = a_left
         :: else
         fi;
         was = a_left; a_id = 0; a_left = 0; a_members = 0; a_sig = 0; a_taken = 0
       }
       atomic { s_joined[o] = s_joined[o] | (line[L(o, 0)].number != 0 -> BIT(line[L(o, 0)].id) : 0) }
       atomic { s_joined[o] = (s_joined[o] | (line[L(o, 1)].number != 0 -> BIT(line[L(o, 1)].id) : 0)) & ~was; was = 0 }
    :: else
    fi
  }
  o = 0;
  d_step {
    blocked = 0;
    for (o : 0 .. WORKERS - 1) {
      lacks[o] = 0;
      if
      :: s_waits[o] != 0 ->
         for (k : 0 .. WORKERS - 1) {
           if
           :: (s_members[o] & BIT(k)) && s_in[k] != s_waits[o] && !(s_joined[k] & BIT(s_waits[o])) -> lacks[o] = lacks[o] | BIT(k)
           :: else
           fi;
           if  /* is about to fail */
           :: (s_members[o] & BIT(k)) && (s_left[k] & BIT(s_waits[o])) -> was = 1
           :: else
           fi
         }
         if
         :: lacks[o] != 0 && !was -> blocked = blocked | BIT(o)
         :: else
         fi;
         was = 0
      :: else
      fi
    }
    for (k : 1 .. WORKERS) {  /* who waits for one that is not blocked may go on */
      for (o : 0 .. WORKERS - 1) {
        if
        :: (blocked & BIT(o)) && (lacks[o] & ~blocked) -> blocked = blocked & ~BIT(o)
        :: else
        fi
      }
    }
    if
    :: blocked & BIT(me)
    :: else -> blocked = 0
    fi;
    circle = 0;
    for (o : 0 .. WORKERS - 1) {
      if
      :: blocked & BIT(o) -> circle = circle | ((s_waits[o] + (lacks[o] << 3)) << (6 * o))
      :: else
      fi;
      s_waits[o] = 0; s_in[o] = 0; s_members[o] = 0; s_left[o] = 0; s_joined[o] = 0; lacks[o] = 0
    }
    o = 0; k = 0; blocked = 0
  }
}

/* ---- a collective ---- */

inline leave() {  /* holds the turn to leave */
  come_to(FAILED);
  left = left | BIT(id);
  write(1, 1);
  leaver = 0;
  d_step { waits_in[me] = 0; look_again() }
}

inline take_note() {
  d_step { taken[me]++; tell_all() }
}

/* by_lines := all have joined, as their lines say */
inline agree_by_lines() {
  is_not_enough = 0; by_lines = 0; late = 0; again = 0;
  do
  :: late < WORKERS ->
     joined = 0;
     if
     :: late == me || !(MEMBERS(id) & BIT(late)) -> joined = 1
     :: else ->
        read_latest(late);
        d_step {
          is_same = STANDS_IN(L(late, newest), id) && line[L(late, newest)].sig == sig;
          was_in_record = line[L(late, newest)].in_record;
          if
          :: STANDS_IN(L(late, newest), id) && (line[L(late, newest)].sig != sig || was_in_record) -> is_not_enough = 1
          :: else
          fi;
          joined = is_same && !was_in_record
        }
        if
        :: is_same
        :: else ->
           d_step {
             is_same = STANDS_IN(L(late, 1 - newest), id) && line[L(late, 1 - newest)].sig == sig;
             is_same = is_same && !line[L(late, 1 - newest)].in_record
           }
           if
           :: is_same && !was_in_record -> joined = 1
           :: is_same && was_in_record ->  /* it went on to what needs its record */
              atomic { !is_being_written(late); view_arrival(late, id); joined = (a_id == id && !(a_left & BIT(id)));
                a_id = 0; a_left = 0; a_members = 0; a_sig = 0; a_taken = 0 }
           :: else
           fi
        fi;
        d_step { newest = 0; is_same = 0; was_in_record = 0 }
     fi;
     if
     :: joined -> late++
     :: else -> d_step { joined = 0; late = (again -> 0 : late) };
        if
        :: is_not_enough -> break
        :: !is_not_enough && is_new[me] -> is_new[me] = 0
        :: !is_not_enough -> break  /* it takes too long */
        fi
     fi
  :: late == WORKERS && !again && !is_not_enough ->
#if defined(FAULT_LOOKS_ONCE) || WORKERS == 2
     by_lines = 1; break  /* right with one other; else a fault: with ORDER 4, not found in 75 s, and so not among check_model.py's */
#else
     again = 1; late = 0  /* all at one moment: nobody has left while we waited for the last */
#endif
  :: late == WORKERS && (again || is_not_enough) -> by_lines = !is_not_enough; break
  od;
  atomic { late = 0; again = 0; joined = 0; is_not_enough = 0 }
}

#ifdef FAULT_LEAVES_ON_FIRST_SUSPICION
#define MUST_BE circle
#else
#define MUST_BE suspicion
#endif

/* found := AGREED, or the member has left */
inline agree_slowly() {
  d_step { may_come = 1; suspicion = 0 }
  do
  :: settle();
     if
     :: found == AGREED -> break
     :: found == FAILED -> atomic { !leaver -> leaver = 1 } leave(); break
     :: else
     fi;
     if  /* waits */
     :: is_new[me]
     :: may_come -> may_come = 0
     :: LOOKS && !may_come && (looks_due[me] || suspicion != 0) ->
        looks_due[me] = 0;
        look_for_deadlock();
        if
        :: circle != 0 && circle == MUST_BE ->
           if
           :: atomic { !leaver -> leaver = 1 }
#ifndef FAULT_LEAVES_ON_FIRST_SUSPICION
              look_for_deadlock();
#endif
              if
              :: circle == MUST_BE ->
                 settle();
                 if
                 :: found == 0 -> found = FAILED; leave(); break
                 :: else -> leaver = 0
                 fi
              :: else -> leaver = 0
              fi
           :: leaver  /* not our turn */
           fi
        :: else
        fi;
        d_step { suspicion = circle; circle = 0 }
     fi
  od;
  atomic { may_come = 0; suspicion = 0; circle = 0 }
}

inline read_beside(w, l, n) {  /* it was written with this arrival, and has not been written since */
  assert(data[L(w, l)] == n)
}

/* reads the arrivals that all have agreed on, moves the data */
inline agree() {
  d_step { waits_in[me] = id; look_again() }
  line_is_enough = (left == 0);
  write(!line_is_enough, 1);
  my_line = at;
  by_lines = 0; found = 0;
  if
  :: line_is_enough -> agree_by_lines()
  :: else
  fi;
  if
  :: by_lines -> found = AGREED
  :: else ->
     if
     :: line_is_enough -> await_takers(1 - at); write_record(1)
     :: else
     fi;
     agree_slowly()
  fi;
  if
  :: found == AGREED ->
     come_to(AGREED);
     for (o : 0 .. WORKERS - 1) {
       if
       :: o != me && (MEMBERS(id) & BIT(o)) ->
          d_step {
            (line[L(o, 0)].id == id || line[L(o, 1)].id == id) ->  /* the lines may come after the record */
            its_line = (line[L(o, 0)].id == id -> 0 : 1);
            its_number[o] = line[L(o, its_line)].number;
            a_taken = line[L(o, its_line)].taken;
            was_in_record = line[L(o, its_line)].in_record
          }
          if
          :: !line_is_enough || was_in_record -> atomic { !is_being_written(o); view_arrival(o, id); assert(a_id == id) }
          :: else
          fi;
          if
          :: eager & BIT(id)
          :: else -> read_beside(o, its_line, its_number[o])
          fi;
          d_step {
            lines = lines | (its_line << o);
            takers[L(o, my_line)] = a_taken + 1; seen_taken[o] = a_taken;
            a_id = 0; a_left = 0; a_members = 0; a_sig = 0; a_taken = 0; was_in_record = 0; its_line = 0
          }
       :: else
       fi
     }
     o = 0;
     d_step { waits_in[me] = 0; moves_in[me] = id; look_again() }
     if
     :: eager & BIT(id) ->
#ifdef FAULT_TAKES_BEFORE_IT_READS
        take_note();
#endif
        for (o : 0 .. WORKERS - 1) {
          if
          :: o != me && (MEMBERS(id) & BIT(o)) -> read_beside(o, (lines >> o) & 1, its_number[o])
          :: else
          fi
        }
        o = 0;
#ifndef FAULT_TAKES_BEFORE_IT_READS
        take_note()
#endif
     :: !(eager & BIT(id)) && (part_of_all & BIT(id)) ->
        taken[me]++;  /* nobody waits for it */
        has_moved[me] = has_moved[me] | BIT(id);
        for (o : 0 .. WORKERS - 1) {
          if
          :: MEMBERS(id) & BIT(o) -> has_moved[o] & BIT(id)
          :: else
          fi
        }
        o = 0;
        atomic { for (k : 0 .. WORKERS - 1) { takers[L(k, my_line)] = 0 } k = 0 }
     :: else -> take_note()
     fi;
     atomic { for (k : 0 .. WORKERS - 1) { its_number[k] = 0 } k = 0; lines = 0 }
     d_step { moves_in[me] = 0; look_again() }
  :: else
  fi;
  d_step { found = 0; by_lines = 0; line_is_enough = 0; my_line = 0; at = 0 }
}

#define MAY_CALL(i) (i <= IDS && (MEMBERS(i) & BIT(me)) && !(called & BIT(i)) && (EARLIER(i) & ~called) == 0)

proctype worker(byte me) {
  byte number, at, id, left, called, k, o;
  bit sig, by_lines, line_is_enough, my_line, its_line;
  byte takers[WORKERS * 2], seen_taken[WORKERS], its_number[WORKERS];
  byte lines;
  byte a_id, a_left, a_members, a_taken;  /* a view of an arrival */
  bit a_sig, newest, pick, by_record, was_in_record, is_same;
  bit missing, gone, joined_other, was_finished, may_come;
  byte found, late, was;
  bit joined, again, is_not_enough;
  byte s_waits[WORKERS], s_in[WORKERS], s_members[WORKERS], s_left[WORKERS], s_joined[WORKERS], lacks[WORKERS];
  byte blocked;
  int circle, suspicion;

  do
  :: if
     :: atomic { MAY_CALL(1) -> id = 1 }
     :: atomic { MAY_CALL(2) -> id = 2 }
     :: atomic { MAY_CALL(3) -> id = 3 }
     :: else -> break
     fi;
     called = called | BIT(id);
     if
     :: sig = 0; agree()
#ifdef DIFFER
     :: sig = 1; agree()
     :: come_to(FAILED); left = left | BIT(id); write(1, 0)  /* declines: its operands will not do */
#endif
     fi;
     d_step { id = 0; sig = 0 }
  :: break  /* it leaves the command: at its end, or failed */
  od;
  atomic { has_finished[me] = 1; tell_all() }
}

init {
  byte w;
  atomic {
    do  /* each collective: any way to move its data */
    :: w < IDS -> w++;
       if
       :: WAYS > 1 -> eager = eager | BIT(w)
       :: WAYS > 2 -> part_of_all = part_of_all | BIT(w)
       :: skip
       fi
    :: else -> break
    od;
    for (w : 0 .. WORKERS - 1) { run worker(w) }
  }
}
