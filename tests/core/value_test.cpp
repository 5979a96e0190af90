#include "tutti/value.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/wire.h"
#include "support/session_kinds.h"
#include "tutti/function.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using tutti_test::message_of;

TEST(Value, converts_only_what_loses_nothing) {
  EXPECT_EQ(Value(3).as<double>(), 3.0);
  EXPECT_EQ(Value(3).as<int8_t>(), 3);
  EXPECT_THROW(Value(300).as<int8_t>(), UsageError);
  EXPECT_EQ(message_of<UsageError>([] { (void)Value(300).as<int8_t>(); }), "expected an int from -128 to 127, got 300");
  EXPECT_THROW(Value(-1).as<uint32_t>(), UsageError);
  EXPECT_THROW(Value(3.0).as<int>(), UsageError);
  EXPECT_THROW(Value(true).as<int>(), UsageError);
  EXPECT_THROW(Value(1).as<bool>(), UsageError);
  EXPECT_THROW(Value(UINT64_MAX), UsageError);
  EXPECT_NE(message_of<UsageError>([] { Value("x").as<Tensor>(); }).find("expected Tensor, got str 'x'"), std::string::npos);
}

TEST(Value, copies_and_moves_between_all_kinds) {
  auto counted = std::make_shared<int>(7);
  const std::vector<Value> values = {Value(),
                                     true,
                                     3,
                                     2.5,
                                     std::string(100, 'x'),
                                     Bytes(3),
                                     Shape{1, 2},
                                     kBool,
                                     cpu(0),
                                     Tensor::from<int>({1, 2}),
                                     List{1, "x"},
                                     make_function("f", [] { return 1; }),
                                     counted,
                                     Dict({"a", 2}, {List{1}, "x"})};
  const long references = counted.use_count();
  for (const Value& from : values)
    for (const Value& to : values) {
      Value copied = to, moved = to, source = from;
      copied = from;
      EXPECT_EQ(copied, from);
      moved = std::move(source);
      EXPECT_EQ(moved, from);
      Value made(std::move(moved));
      EXPECT_EQ(made, from);
      moved = to;  // what was moved from can be written
      EXPECT_EQ(moved, to);
      Value& self = made;
      made = self;
      EXPECT_EQ(made, from);
    }
  EXPECT_EQ(counted.use_count(), references);
  Value itself = 3;
  Value& alias = itself;
  itself = std::move(alias);
  EXPECT_EQ(itself, Value(3));
  static_assert(std::is_nothrow_default_constructible_v<Value> && std::is_nothrow_move_constructible_v<Value> &&
                std::is_nothrow_move_assignable_v<Value>);
}

TEST(Value, round_trips_on_the_wire) {
  const std::vector<Value> values = {Value(),
                                     false,
                                     INT64_MIN,
                                     1e300,
                                     std::string("a\0b", 3),
                                     Bytes(3),
                                     Shape{-1, 2},
                                     kBool,
                                     cuda(1),
                                     List{List{}, List{1, "x"}},
                                     Dict(),
                                     Dict({"a", 2, List{3}}, {List{1}, Dict({"b"}, {1.5}), Value()}),
                                     Tensor::from<int64_t>({1, 2, 3}),
                                     Tensor::empty({0, 2}, kInt8)};
  for (const Value& value : values) {
    Writer out;
    encode(out, value);
    Reader in(out.bytes());
    EXPECT_EQ(decode_value(in), value) << to_string(value);
    EXPECT_TRUE(in.done());
    for (size_t cut = 0; cut < out.bytes().size(); ++cut) {  // no prefix decodes, none is believed
      Reader part(std::span(out.bytes()).first(cut));
      EXPECT_THROW(decode_value(part), WireError) << to_string(value) << " cut at " << cut;
    }
  }
}

TEST(Dict, keeps_the_order_and_compares_in_any) {
  Dict dict;
  EXPECT_EQ(dict.size(), 0U);
  EXPECT_EQ(dict.find("a"), nullptr);
  dict.set("a", 1);
  dict.set(2, "two");
  dict.set("a", 3);
  EXPECT_EQ(dict.keys(), (List{"a", 2}));
  EXPECT_EQ(dict.values(), (List{3, "two"}));
  ASSERT_NE(dict.find(2), nullptr);
  EXPECT_EQ(*dict.find(2), Value("two"));
  EXPECT_EQ(dict, Dict({2, "a"}, {"two", 3}));
  EXPECT_FALSE(dict == Dict({2, "a"}, {"two", 4}));
  EXPECT_FALSE(dict == Dict({2, "b"}, {"two", 3}));
  EXPECT_FALSE(dict == Dict({2}, {"two"}));
  EXPECT_EQ(to_string(dict), "dict of 2");
  EXPECT_EQ(message_of<UsageError>([] { Dict({1, 2}, {3}); }), "a dict of 2 keys and 1 values: expected as many");
  const Function read = make_function("read", [](const Dict& d, const std::string& key) { return *d.find(key); });
  EXPECT_EQ(read(List{dict, "a"}), Value(3));
  EXPECT_EQ(message_of<UsageError>([&] { read(List{1, "a"}); }), "read: argument 1: expected dict, got int 1");
}

TEST(Value, an_object_travels_as_its_content) {
  Opaque settings{std::make_shared<std::any>(7), "Settings"};
  EXPECT_EQ(travelling(settings), Value(settings));
  settings.content = [](const Opaque& self) -> Value { return Dict({"seven"}, {std::any_cast<int>(*self.object)}); };
  EXPECT_EQ(travelling(settings), Value(Dict({"seven"}, {7})));
  EXPECT_EQ(travelling(List{1, Dict({"s"}, {settings})}), Value(List{1, Dict({"s"}, {Dict({"seven"}, {7})})}));
  EXPECT_EQ(Value(settings).as<Dict>(), Dict({"seven"}, {7}));
  settings.content = [](const Opaque& self) -> Value { return Value(self); };
  EXPECT_EQ(message_of<UsageError>([&] { travelling(settings); }), "opaque object Settings has no content but another object");
  EXPECT_EQ(message_of<UsageError>([&] { Value(settings).as<Dict>(); }), "expected dict, got opaque object Settings");
  settings.content = [](const Opaque& self) -> Value { return List{self}; };
  EXPECT_EQ(message_of<UsageError>([&] { travelling(settings); }), "lists or dicts nested too deep");
}

TEST(Value, says_why_it_cannot_travel) {
  EXPECT_NE(why_not_encodable(Dict({"f"}, {make_function("f", [] {})}), 0, 0), "");
  EXPECT_EQ(why_not_encodable(List{1, "x"}, 0, 0), "");
  EXPECT_NE(why_not_encodable(make_opaque(1), 0, 0), "");
  EXPECT_NE(why_not_encodable(std::make_shared<int>(1), 0, 0), "");
  EXPECT_NE(why_not_encodable(List{make_function("f", [] {})}, 0, 0), "");
  EXPECT_NE(why_not_encodable(RegisterRef{1, 2}, 3, 0), "");
  EXPECT_EQ(why_not_encodable(RegisterRef{3, 2}, 3, 0), "");
  EXPECT_NE(why_not_encodable(Tensor::empty({2}, kInt8), 0, 1), "");
}

TEST(Function, deduces_types_and_reports_the_first_wrong_argument) {
  const Function f = make_function("my.f", [](int64_t a, double b, const std::string& c, const Tensor&) {
    return c + std::to_string(a + static_cast<int64_t>(b));
  });
  const Tensor t = Tensor::empty({1}, kInt8);
  EXPECT_EQ(f(List{1, 2, "x", t}), Value("x3"));
  EXPECT_EQ(message_of<UsageError>([&] { f(List{1, "no", 3, t}); }), "my.f: argument 2: expected float, got str 'no'");
  const Function small = make_function("small", [](int8_t, uint64_t) {});
  EXPECT_EQ(message_of<UsageError>([&] {
              small(List{300, 1});
            }),
            "small: argument 1: expected an int from -128 to 127, got int 300");
  EXPECT_EQ(message_of<UsageError>([&] {
              small(List{3, -1});
            }),
            "small: argument 2: expected an int from 0 to 18446744073709551615, got int -1");
  EXPECT_EQ(message_of<UsageError>([&] { small(List{"a", 1}); }), "small: argument 1: expected int, got str 'a'");
  EXPECT_EQ(message_of<UsageError>([&] { f(List{1}); }), "my.f: expected 4 arguments, got 1");
  EXPECT_EQ(make_function("g", [](Args args) { return static_cast<int>(args.size()); })(List{1, 2, 3}), Value(3));
  EXPECT_TRUE(make_function("h", [] {})(List{}).is_none());
}

TEST(Registry, names_are_unique_unless_overridden) {
  register_global_func("value_test.f", [] { return 1; });
  EXPECT_THROW(register_global_func("value_test.f", [] { return 2; }), UsageError);
  register_global_func("value_test.f", [] { return 3; }, {.override_existing = true});
  EXPECT_EQ(get_global_func("value_test.f")(List{}), Value(3));
  EXPECT_FALSE(find_global_func("value_test.g"));
  EXPECT_NE(message_of<UsageError>([] { get_global_func("value_tesd.f"); }).find("value_test.f"), std::string::npos);
}

TEST(Value, tensors_of_a_device_compare_without_being_read) {
  const auto at = [](uintptr_t address) {
    return Value(Tensor::wrap(reinterpret_cast<void*>(address), {3}, kFloat32, {}, {}, cuda()));
  };
  EXPECT_EQ(at(1 << 20), at(1 << 20));
  EXPECT_NE(at(1 << 20), at(1 << 21));
  EXPECT_NE(at(1 << 20), Value(Tensor::full<float>({3}, 0)));
}

TEST(Value, shared_pointers) {
  struct Base {
    int x = 1;
  };
  struct Derived : Base {};
  auto object = std::make_shared<Base>();
  const Value value = object;
  EXPECT_EQ(value.as<std::shared_ptr<Base>>(), object);
  EXPECT_EQ(value.as<std::shared_ptr<const Base>>(), object);
  EXPECT_EQ(value, Value(object));
  EXPECT_NE(value, Value(std::make_shared<Base>()));
  EXPECT_EQ(Value(std::shared_ptr<Base>()), Value());  // null is None, and back
  EXPECT_EQ(Value().as<std::shared_ptr<Base>>(), nullptr);
  const Value array = std::shared_ptr<float[]>(new float[3]{1, 2, 3});
  EXPECT_EQ(array.as<std::shared_ptr<const float[]>>()[2], 3);
  EXPECT_THROW(Value(std::make_shared<const Base>()).as<std::shared_ptr<Base>>(), UsageError);
  EXPECT_THROW(Value(std::make_shared<Derived>()).as<std::shared_ptr<Base>>(), UsageError);
  try {
    Value(std::make_shared<const std::string>("a")).as<std::shared_ptr<int>>();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("expected std::shared_ptr<int>, got opaque object std::shared_ptr<std::"),
              std::string::npos)
        << error.what();
  }
}

TEST(Registry, a_fork_looks_up_functions_whatever_other_threads_do) {
  register_global_func("value_test.forked", [] {});
  std::atomic<bool> goes_on{true};
  std::thread other([&] {
    while (goes_on) get_global_func("value_test.forked");
  });
  int well = 0;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      get_global_func("value_test.forked");
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    well += status == 0;
    if (status != 0) break;
  }
  goes_on = false;
  other.join();
  EXPECT_EQ(well, 100);
}

}  // namespace
