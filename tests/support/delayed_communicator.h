// Collectives of the delayed device: each member's part runs on its stream, and meets the others' there.
#pragma once

namespace tutti_test::delayed {

void add_communicator();

}  // namespace tutti_test::delayed
