// Whether a function of a vendor's header is what we declare: our types stand for the vendor's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

namespace bootstrap {

// What a type of a header is in ours. Enums of C are `int`, and a file that has other types says which.
template <class T, class = void>
struct OurType {
  using Type = T;
};
template <class T>
struct OurType<T, std::enable_if_t<std::is_enum_v<T>>> {
  static_assert(sizeof(T) == sizeof(int));
  using Type = int;
};
template <class T>
struct OurType<T*> {
  using Type = typename OurType<T>::Type*;
};
template <class T>
struct OurType<const T> {
  using Type = const typename OurType<T>::Type;
};
template <class Value, class... Arguments>
struct OurType<Value(Arguments...)> {
  using Type = typename OurType<Value>::Type(typename OurType<Arguments>::Type...);
};

template <class Theirs, class Pointer>
inline constexpr bool kIsDeclared = std::is_same_v<typename OurType<Theirs>::Type*, Pointer>;

}  // namespace bootstrap
