#include <stdexcept>

struct NotToday : std::logic_error {  // a type that goes with the library
  using std::logic_error::logic_error;
};

struct Throws {
  Throws() { throw NotToday("not today"); }
};
static Throws throws;
