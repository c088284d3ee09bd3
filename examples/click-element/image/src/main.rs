//! The image of functions, with elements of one's own.
#![no_std]
#![no_main]

ringway_tiny::click_image!(my_elements::CLASSES);
