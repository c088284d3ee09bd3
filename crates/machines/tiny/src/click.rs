//! The image of functions, with the project's elements.
#![no_std]
#![no_main]

ringway_tiny::click_image!(&[]);
