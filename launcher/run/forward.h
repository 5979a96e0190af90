#pragma once

namespace tutti::launcher {

/// Returns in a child process, whose standard streams, and those of the program that it becomes, go through a LineMarker here. This process, which mpirun
/// waits for, passes on all that the program has written and then ends as it has.  @throws SystemError
void forward_lines();

}  // namespace tutti::launcher
