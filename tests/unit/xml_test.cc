// The XML tokenizer: what programs write is read, everything else is refused with the line at which it is wrong.
// SPDX-License-Identifier: Apache-2.0
#include "core/xml.h"

#include <gtest/gtest.h>

#include "core/text.h"

namespace bootstrap {
namespace {

// "a(b()c())" for <a><b/><c></c></a>, or the message.
std::string shape(std::string_view text) {
  XmlReader reader(text);
  std::string seen;
  for (;;) {
    const auto event = reader.next();
    if (!event) return event.error().message;
    if (*event == XmlReader::Event::kEnd) return seen;
    seen += *event == XmlReader::Event::kOpen ? cat({reader.name(), "("}) : ")";
  }
}

TEST(Xml, OpensAndCloses) {
  EXPECT_EQ(shape("<a/>"), "a()");
  EXPECT_EQ(shape("<a><b/>text<c></c ></a >\n"), "a(b()c())");
  EXPECT_EQ(shape("<?xml version=\"1.0\"?>\n<!DOCTYPE t SYSTEM \"h.dtd\">\n<!-- <no> --><t>&amp;<!-- -- --></t>"),
            "t()");
}

TEST(Xml, ReadsAttributes) {
  XmlReader reader("<a x=\"1\" y = '2\"'\n z=\"\"/>");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.attribute("x"), "1");
  EXPECT_EQ(reader.attribute("y"), "2\"");
  EXPECT_EQ(reader.attribute("z"), "");
  EXPECT_EQ(reader.attribute("none"), "");
  EXPECT_EQ(reader.depth(), 1U);
}

TEST(Xml, RefusesWhatIsNotWellFormed) {
  EXPECT_EQ(shape(""), "line 1: there is no element");
  EXPECT_EQ(shape("a<b/>"), "line 1: there is text outside of all elements");
  EXPECT_EQ(shape("<b/>a"), "line 1: there is text outside of all elements");
  EXPECT_EQ(shape("<a>\n<b>"), "line 2: the text ends inside element \"b\"");
  EXPECT_EQ(shape("<a></b>"), "line 1: the end of element \"b\" ends nothing");
  EXPECT_EQ(shape("</a>"), "line 1: the end of element \"a\" ends nothing");
  EXPECT_EQ(shape("<a/><b/>"), "line 1: there is a second outermost element");
  EXPECT_EQ(shape("<a x=1/>"), "line 1: the value of \"x\" is not in quotes");
  EXPECT_EQ(shape("<a x=\"1/>"), "line 1: the value of \"x\" has no end");
  EXPECT_EQ(shape("<a x/>"), "line 1: attribute \"x\" has no value");
  EXPECT_EQ(shape("<a x=\"<\"/>"), "line 1: the value of \"x\" holds a '<'");
  EXPECT_EQ(shape("<a x='1' x='2'/>"), "line 1: attribute \"x\" is there twice");
  EXPECT_EQ(shape("<a =\"1\"/>"), "line 1: the tag of element \"a\" holds what is no attribute");
  EXPECT_EQ(shape("<a x='1'y='2'/>"), "line 1: the tag of element \"a\" has no end");
  EXPECT_EQ(shape("<a"), "line 1: the tag of element \"a\" has no end");
  EXPECT_EQ(shape("<a "), "line 1: the tag of element \"a\" has no end");
  EXPECT_EQ(shape("<a / >"), "line 1: a '/' inside a tag does not end it");
  EXPECT_EQ(shape("<a></a"), "line 1: the end of element \"a\" has no '>'");
  EXPECT_EQ(shape("< a/>"), "line 1: a '<' begins no element");
  EXPECT_EQ(shape("<a><![CDATA[x]]></a>"), "line 1: a '<' begins no element");
  EXPECT_EQ(shape("<!-- "), "line 1: a comment has no end");
  EXPECT_EQ(shape("<?xml"), "line 1: a declaration has no end");
  EXPECT_EQ(shape("<!DOCTYPE t [<!ENTITY a \"b\">]><t/>"),
            "line 1: a document type with declarations in it is not read");
}

TEST(Xml, IsBounded) {
  std::string deep;
  for (std::size_t i = 0; i < XmlReader::kMaxDepth; ++i) deep += "<a>";
  EXPECT_EQ(shape(deep + "<a>"), "line 1: elements are nested more than 64 deep");
  std::string wide = "<a";
  for (std::size_t i = 0; i <= XmlReader::kMaxAttributes; ++i) wide += cat({" x", std::to_string(i), "=''"});
  EXPECT_EQ(shape(wide + "/>"), "line 1: an element has too many attributes");
}

TEST(Xml, ResolvesReferences) {
  EXPECT_EQ(xml_value("a &lt;&gt;&amp;&quot;&apos; b"), "a <>&\"' b");
  EXPECT_EQ(xml_value("&#65;&#x42;"), "AB");
  EXPECT_EQ(xml_value("&#10;&#x20ac;\n\xc3\xa9"), "?????");
  EXPECT_EQ(xml_value("& &; &none; &#x; &#99999999999;"), "? ?; ?none; ?#x; ?#99999999999;");
}

}  // namespace
}  // namespace bootstrap
