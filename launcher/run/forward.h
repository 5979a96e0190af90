#pragma once

namespace tutti::launcher {

/// Returns in a child process, whose standard output and error, and those of the program that it becomes, go in frames
/// (run/frames.h) to the standard error of this process: to mpirun a pipe, where its standard output is a terminal. This
/// process, which mpirun waits for, passes on all that the program has written and then ends as it has. When mpirun's daemon
/// dies, it ends the program.  @throws SystemError
void forward_output(int rank);

}  // namespace tutti::launcher
