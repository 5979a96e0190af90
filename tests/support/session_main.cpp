// main of every test program that makes sessions: GoogleTest runs on rank 0, the other ranks serve.
#include <gtest/gtest.h>

#include "tutti/session.h"

int main(int argc, char** argv) {
  return tutti::run(argc, argv, [](int n, char** args) {
    testing::InitGoogleTest(&n, args);
    return RUN_ALL_TESTS();
  });
}
