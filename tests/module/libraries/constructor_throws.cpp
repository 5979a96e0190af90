#include <stdexcept>

struct Throws {
  Throws() { throw std::logic_error("not today"); }
};
static Throws throws;
