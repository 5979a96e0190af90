// Collectives of the delayed device: each member's part runs on its stream, and meets the others' there.
#pragma once

#include <vector>

namespace tutti_test::delayed {

void add_communicator();
std::vector<const void*> freed_by(int worker);  ///< what the members of the same communicator share, in its order

}  // namespace tutti_test::delayed
